//! Changing a graph. Every call keeps both ends of each connection in agreement, and leaves the
//! graph as it was when it fails.

use std::collections::{BTreeMap, HashSet};

use super::error::{EditError, check_word};
use super::{Graph, Operand, OperandId, Operator, OperatorId};
use crate::attribute::Attribute;
use crate::dtype::TensorType;
use crate::parameter::Parameter;

impl Graph {
    /// Appends an operator.
    ///
    /// # Errors
    /// If the name is taken, or kind or name cannot be written to a file.
    pub fn new_operator(&mut self, kind: &str, name: &str) -> Result<OperatorId, EditError> {
        check_word("an operator's kind", kind, None)?;
        check_word("an operator's name", name, None)?;
        if self.operator_names.contains_key(name) {
            return Err(EditError::DuplicateOperator { name: name.to_owned() });
        }
        Ok(self.push_operator(Operator {
            kind: kind.to_owned(),
            name: name.to_owned(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            input_names: Vec::new(),
            after: Vec::new(),
            followers: Vec::new(),
            params: BTreeMap::new(),
            attrs: BTreeMap::new(),
            line: None,
            origin: None,
        }))
    }

    /// Makes an operator and puts it right before another one in file order.
    ///
    /// # Errors
    /// As [`Graph::new_operator`], or if `at` is not in the graph.
    pub fn new_operator_before(
        &mut self,
        kind: &str,
        name: &str,
        at: OperatorId,
    ) -> Result<OperatorId, EditError> {
        let position = self.position(at)?;
        self.new_operator_at(kind, name, position)
    }

    /// Makes an operator and puts it right after another one in file order.
    ///
    /// # Errors
    /// As [`Graph::new_operator`], or if `at` is not in the graph.
    pub fn new_operator_after(
        &mut self,
        kind: &str,
        name: &str,
        at: OperatorId,
    ) -> Result<OperatorId, EditError> {
        let position = self.position(at)?;
        self.new_operator_at(kind, name, position + 1)
    }

    fn new_operator_at(
        &mut self,
        kind: &str,
        name: &str,
        position: usize,
    ) -> Result<OperatorId, EditError> {
        let id = self.new_operator(kind, name)?;
        self.order.pop();
        self.order.insert(position, id);
        Ok(id)
    }

    fn position(&self, id: OperatorId) -> Result<usize, EditError> {
        self.order.iter().position(|&other| other == id).ok_or(EditError::NoSuchOperator(id))
    }

    /// Makes an operand that nobody makes or reads yet.
    ///
    /// # Errors
    /// If the name is taken, or cannot be written to a file.
    pub fn new_operand(&mut self, name: &str) -> Result<OperandId, EditError> {
        check_word("an operand's name", name, Some('='))?;
        if self.operand_names.contains_key(name) {
            return Err(EditError::DuplicateOperand { name: name.to_owned() });
        }
        Ok(self.push_operand(Operand {
            name: name.to_owned(),
            ty: TensorType::default(),
            producer: None,
            consumers: Vec::new(),
        }))
    }

    /// Records shape and element type of an operand.
    ///
    /// # Errors
    /// If the operand is not in the graph, or the name of a symbolic dimension cannot be written to
    /// a file.
    pub fn set_type(&mut self, operand: OperandId, ty: TensorType) -> Result<(), EditError> {
        crate::param::check_type(&ty)?;
        self.live_operand_mut(operand)?.ty = ty;
        Ok(())
    }

    /// Lets `operator` read `operand` as its last input.
    ///
    /// # Errors
    /// If one of them is not in the graph.
    pub fn connect_input(
        &mut self,
        operator: OperatorId,
        operand: OperandId,
    ) -> Result<(), EditError> {
        self.live_operator(operator)?;
        self.live_operand_mut(operand)?.consumers.push(operator);
        let operator = self.live_operator_mut(operator)?;
        operator.inputs.push(operand);
        operator.input_names.push(None);
        Ok(())
    }

    /// Lets `operator` read `operand` as its last input, which is the argument `key`.
    ///
    /// # Errors
    /// If one of them is not in the graph, or the key is taken or cannot be written to a file.
    pub fn connect_named_input(
        &mut self,
        operator: OperatorId,
        key: &str,
        operand: OperandId,
    ) -> Result<(), EditError> {
        self.check_input_name(operator, key)?;
        self.connect_input(operator, operand)?;
        if let Some(name) = self.live_operator_mut(operator)?.input_names.last_mut() {
            *name = Some(key.to_owned());
        }
        Ok(())
    }

    /// Names the argument that an input stands for, or takes the name away.
    ///
    /// # Errors
    /// If there is no such input, or the key is taken or cannot be written to a file.
    pub fn set_input_name(
        &mut self,
        operator: OperatorId,
        index: usize,
        key: Option<&str>,
    ) -> Result<(), EditError> {
        self.input(operator, index)?;
        let held = self.live_operator(operator)?.input_names.get(index).and_then(Option::as_deref);
        if let Some(key) = key.filter(|&key| Some(key) != held) {
            self.check_input_name(operator, key)?;
        }
        if let Some(name) = self.live_operator_mut(operator)?.input_names.get_mut(index) {
            *name = key.map(str::to_owned);
        }
        Ok(())
    }

    fn check_input_name(&self, operator: OperatorId, key: &str) -> Result<(), EditError> {
        check_word("an input's name", key, Some('='))?;
        let operator = self.live_operator(operator)?;
        if operator.named_input(key).is_some() {
            return Err(EditError::DuplicateInputName {
                operator: operator.name.clone(),
                key: key.to_owned(),
            });
        }
        Ok(())
    }

    /// Lets one input read another operand; returns the one it read before. The input keeps its
    /// name.
    ///
    /// # Errors
    /// If operator, input or operand do not exist.
    pub fn replace_input(
        &mut self,
        operator: OperatorId,
        index: usize,
        operand: OperandId,
    ) -> Result<OperandId, EditError> {
        let before = self.input(operator, index)?;
        self.live_operand_mut(operand)?.consumers.push(operator);
        self.forget_use(before, operator);
        if let Some(input) = self.live_operator_mut(operator)?.inputs.get_mut(index) {
            *input = operand;
        }
        Ok(before)
    }

    /// Takes an input away; later inputs move up. Returns the operand that it read.
    ///
    /// # Errors
    /// If there is no such input.
    pub fn remove_input(
        &mut self,
        operator: OperatorId,
        index: usize,
    ) -> Result<OperandId, EditError> {
        let before = self.input(operator, index)?;
        self.forget_use(before, operator);
        let operator = self.live_operator_mut(operator)?;
        operator.inputs.remove(index);
        operator.input_names.remove(index);
        Ok(before)
    }

    /// Takes several inputs away, as [`Graph::remove_input`] does one.
    ///
    /// # Errors
    /// If one of them does not exist.
    pub fn remove_inputs(
        &mut self,
        operator: OperatorId,
        range: std::ops::Range<usize>,
    ) -> Result<(), EditError> {
        if range.is_empty() {
            return Ok(());
        }
        self.input(operator, range.end - 1)?;
        let live = self.live_operator_mut(operator)?;
        live.input_names.drain(range.clone());
        let gone: Vec<OperandId> = live.inputs.drain(range).collect();
        for operand in gone {
            self.forget_use(operand, operator);
        }
        Ok(())
    }

    /// Stops `operator` from reading `operand`, at all of its inputs. Returns how many inputs went
    /// away.
    ///
    /// # Errors
    /// If one of them is not in the graph.
    pub fn remove_consumer(
        &mut self,
        operand: OperandId,
        operator: OperatorId,
    ) -> Result<usize, EditError> {
        self.live_operand_mut(operand)?.consumers.retain(|&consumer| consumer != operator);
        let operator = self.live_operator_mut(operator)?;
        let before = operator.inputs.len();
        let mut keep =
            operator.inputs.iter().map(|&input| input != operand).collect::<Vec<_>>().into_iter();
        operator.input_names.retain(|_| keep.next().unwrap_or(true));
        operator.inputs.retain(|&input| input != operand);
        Ok(before - operator.inputs.len())
    }

    /// Lets everybody who reads `old` read `new` instead. Returns how many inputs changed.
    ///
    /// # Errors
    /// If one of them is not in the graph.
    pub fn replace_uses(&mut self, old: OperandId, new: OperandId) -> Result<usize, EditError> {
        self.live_operand_mut(new)?;
        if old == new {
            return Ok(0);
        }
        let consumers = std::mem::take(&mut self.live_operand_mut(old)?.consumers);
        for &consumer in &consumers {
            if let Some(operator) = self.operator_mut(consumer) {
                for input in operator.inputs.iter_mut().filter(|input| **input == old) {
                    *input = new;
                }
            }
        }
        let changed = consumers.len();
        self.live_operand_mut(new)?.consumers.extend(consumers);
        Ok(changed)
    }

    /// Makes `operand` the last output of `operator`.
    ///
    /// # Errors
    /// If one of them is not in the graph, or another operator makes the operand already.
    pub fn connect_output(
        &mut self,
        operator: OperatorId,
        operand: OperandId,
    ) -> Result<(), EditError> {
        self.live_operator(operator)?;
        let target = self.operand(operand).ok_or(EditError::NoSuchOperand(operand))?;
        if let Some(producer) = target.producer {
            return Err(EditError::AlreadyProduced {
                operand: target.name.clone(),
                producer: self
                    .operator(producer)
                    .map(|producer| producer.name.clone())
                    .unwrap_or_default(),
            });
        }
        self.live_operand_mut(operand)?.producer = Some(operator);
        self.live_operator_mut(operator)?.outputs.push(operand);
        Ok(())
    }

    /// Takes an operand from the operator that makes it; later outputs move up. Returns the former
    /// producer.
    ///
    /// # Errors
    /// If the operand is not in the graph.
    pub fn disconnect_output(
        &mut self,
        operand: OperandId,
    ) -> Result<Option<OperatorId>, EditError> {
        let producer = self.live_operand_mut(operand)?.producer.take();
        if let Some(operator) = producer.and_then(|producer| self.operator_mut(producer)) {
            operator.outputs.retain(|&output| output != operand);
        }
        Ok(producer)
    }

    /// Removes an operator together with the operands that it makes. Operators that were to come
    /// after it come after those that it came after, or read from: order is kept.
    ///
    /// # Errors
    /// If another operator still reads one of them: [`replace_uses`](Graph::replace_uses) first.
    pub fn remove_operator(&mut self, id: OperatorId) -> Result<(), EditError> {
        let operator = self.live_operator(id)?;
        for operand in operator.outputs.iter().filter_map(|&output| self.operand(output)) {
            if let Some(&consumer) = operand.consumers.iter().find(|&&consumer| consumer != id) {
                return Err(self.still_read(operand, consumer));
            }
        }
        let position = self.position(id)?;
        self.hand_on_control(id);
        let operator = self
            .operators
            .get_mut(id.0)
            .and_then(Option::take)
            .ok_or(EditError::NoSuchOperator(id))?;
        self.order.remove(position);
        self.operator_names.remove(&operator.name);
        for input in operator.inputs {
            self.forget_use(input, id);
        }
        for output in operator.outputs {
            self.drop_operand(output);
        }
        Ok(())
    }

    /// Removes an operand, taking it from its producer's outputs.
    ///
    /// # Errors
    /// If an operator still reads it.
    pub fn remove_operand(&mut self, id: OperandId) -> Result<(), EditError> {
        let operand = self.operand(id).ok_or(EditError::NoSuchOperand(id))?;
        if let Some(&consumer) = operand.consumers.first() {
            return Err(self.still_read(operand, consumer));
        }
        self.disconnect_output(id)?;
        self.drop_operand(id);
        Ok(())
    }

    /// Gives an operator another kind.
    ///
    /// # Errors
    /// If the operator is not in the graph, or the kind cannot be written to a file.
    pub fn set_kind(&mut self, operator: OperatorId, kind: &str) -> Result<(), EditError> {
        check_word("an operator's kind", kind, None)?;
        self.live_operator_mut(operator)?.kind = kind.to_owned();
        Ok(())
    }

    /// Gives an operator another name, and with it its weights' entries in the `.bin` file.
    ///
    /// # Errors
    /// If the operator is not in the graph, or the name is taken or cannot be written to a file.
    pub fn rename_operator(&mut self, id: OperatorId, name: &str) -> Result<(), EditError> {
        check_word("an operator's name", name, None)?;
        if self.operator_names.get(name).is_some_and(|&other| other != id) {
            return Err(EditError::DuplicateOperator { name: name.to_owned() });
        }
        let before = std::mem::replace(&mut self.live_operator_mut(id)?.name, name.to_owned());
        self.operator_names.remove(&before);
        self.operator_names.insert(name.to_owned(), id);
        Ok(())
    }

    /// Gives an operand another name.
    ///
    /// # Errors
    /// If the operand is not in the graph, or the name is taken or cannot be written to a file.
    pub fn rename_operand(&mut self, id: OperandId, name: &str) -> Result<(), EditError> {
        check_word("an operand's name", name, Some('='))?;
        if self.operand_names.get(name).is_some_and(|&other| other != id) {
            return Err(EditError::DuplicateOperand { name: name.to_owned() });
        }
        let before = std::mem::replace(&mut self.live_operand_mut(id)?.name, name.to_owned());
        self.operand_names.remove(&before);
        self.operand_names.insert(name.to_owned(), id);
        Ok(())
    }

    /// The parameters of an operator, to change. What cannot be written to a file is refused by
    /// `save`.
    ///
    /// # Errors
    /// If the operator is not in the graph.
    pub fn params_mut(
        &mut self,
        operator: OperatorId,
    ) -> Result<&mut BTreeMap<String, Parameter>, EditError> {
        Ok(&mut self.live_operator_mut(operator)?.params)
    }

    /// The weights of an operator, to change. What cannot be written to a file is refused by
    /// `save`.
    ///
    /// # Errors
    /// If the operator is not in the graph.
    pub fn attrs_mut(
        &mut self,
        operator: OperatorId,
    ) -> Result<&mut BTreeMap<String, Attribute>, EditError> {
        Ok(&mut self.live_operator_mut(operator)?.attrs)
    }

    /// Puts the operators in another file order, for instance that of
    /// [`topo::kahn`](crate::topo::kahn).
    ///
    /// # Errors
    /// If `order` does not hold each operator once.
    pub fn set_order(&mut self, order: Vec<OperatorId>) -> Result<(), EditError> {
        let distinct: HashSet<_> =
            order.iter().copied().filter(|&id| self.operator(id).is_some()).collect();
        if distinct.len() != self.order.len() || order.len() != self.order.len() {
            return Err(EditError::NotAPermutation { count: self.order.len() });
        }
        self.order = order;
        Ok(())
    }

    fn live_operator(&self, id: OperatorId) -> Result<&Operator, EditError> {
        self.operator(id).ok_or(EditError::NoSuchOperator(id))
    }

    fn live_operator_mut(&mut self, id: OperatorId) -> Result<&mut Operator, EditError> {
        self.operator_mut(id).ok_or(EditError::NoSuchOperator(id))
    }

    fn live_operand_mut(&mut self, id: OperandId) -> Result<&mut Operand, EditError> {
        self.operand_mut(id).ok_or(EditError::NoSuchOperand(id))
    }

    fn input(&self, operator: OperatorId, index: usize) -> Result<OperandId, EditError> {
        let operator = self.live_operator(operator)?;
        operator.inputs.get(index).copied().ok_or_else(|| EditError::NoSuchInput {
            operator: operator.name.clone(),
            index,
            count: operator.inputs.len(),
        })
    }

    fn still_read(&self, operand: &Operand, consumer: OperatorId) -> EditError {
        EditError::StillRead {
            operand: operand.name.clone(),
            consumer: self
                .operator(consumer)
                .map(|consumer| consumer.name.clone())
                .unwrap_or_default(),
        }
    }

    /// Strikes one use from the operand's list of consumers.
    fn forget_use(&mut self, operand: OperandId, consumer: OperatorId) {
        let Some(operand) = self.operand_mut(operand) else {
            return;
        };
        let mut consumers = operand.consumers.iter();
        if let Some(at) = consumers.position(|&other| other == consumer) {
            operand.consumers.remove(at);
        }
    }

    fn drop_operand(&mut self, id: OperandId) {
        if let Some(operand) = self.operands.get_mut(id.0).and_then(Option::take) {
            self.operand_names.remove(&operand.name);
        }
    }
}
