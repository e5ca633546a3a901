//! Rows of a table by their numbers: embedding.

use crate::indexing::gather::take_blocks;
use crate::{
    BuildError, Kernel, NodeReader, Operator, PlanCx, PlanError, Planned, RunCx, RunError,
    ShapeError, StrideRule, TensorValue, ValueSpec, Weight, register_op,
};
use plutino_tensor::DType;

/// <https://pytorch.org/docs/stable/generated/torch.nn.Embedding.html>
#[derive(Debug)]
struct Embedding {
    input: usize,
    table: Table,
}

#[derive(Debug, Clone)]
enum Table {
    Weight(Weight),
    Input(usize),
}

fn embedding(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let input = r.required_input("input")?;
    // These matter for training only.
    let _: (bool, bool) = (r.or("sparse", false)?, r.or("scale_grad_by_freq", false)?);
    let (_, _): (Option<i64>, Option<f64>) = (r.optional("padding_idx")?, r.optional("norm_type")?);
    if r.optional::<f64>("max_norm")?.is_some() {
        return Err(r.bad("max_norm", "None: PyTorch would change the weights while it runs"));
    }
    let table = if r.kind() == "nn.Embedding" {
        let (rows, columns) = (r.required("num_embeddings")?, r.required("embedding_dim")?);
        Table::Weight(r.weight("weight", &[rows, columns])?)
    } else {
        Table::Input(r.required_input("weight")?)
    };
    Ok(Box::new(Embedding { input, table }))
}
register_op!(embedding => "nn.Embedding", "F.embedding");

impl Embedding {
    /// Dtype, rows and columns of the table.
    fn table(&self, inputs: &[ValueSpec]) -> Result<(DType, usize, usize), ShapeError> {
        let spec = match &self.table {
            Table::Weight(w) => &w.spec,
            Table::Input(at) => &TensorValue::at(inputs, *at)?.spec,
        };
        match spec.shape.dims() {
            &[rows, columns] => Ok((spec.dtype, rows, columns)),
            _ => {
                Err(ShapeError::Rank { input: 1, expected: "2".into(), found: spec.shape.clone() })
            }
        }
    }
}

impl Operator for Embedding {
    fn stride_rule(&self, _: &[ValueSpec]) -> StrideRule {
        StrideRule::Contiguous
    }

    fn infer(&self, inputs: &[ValueSpec]) -> Result<Vec<ValueSpec>, ShapeError> {
        let index = TensorValue::at(inputs, self.input)?;
        crate::indexing::gather::check_index(self.input, index)?;
        let (dtype, _, columns) = self.table(inputs)?;
        let mut shape = index.shape().clone();
        shape.push(columns);
        shape.checked_numel()?;
        Ok(vec![ValueSpec::tensor(dtype, shape)])
    }

    fn plan(&self, cx: &PlanCx<'_>) -> Result<Planned, PlanError> {
        let (dtype, rows, columns) = self.table(cx.inputs)?;
        if let Table::Weight(w) = &self.table {
            w.bytes()?; // refused here, not in the run
        }
        Ok(Planned::new(Lookup {
            input: self.input,
            table: self.table.clone(),
            rows,
            row_bytes: columns.saturating_mul(dtype.size_of()),
        }))
    }

    fn refuses_data(&self) -> bool {
        true
    }
}

/// Copies rows out of the table, which stays where the file has it.
struct Lookup {
    input: usize,
    table: Table,
    rows: usize,
    row_bytes: usize,
}

impl Kernel for Lookup {
    fn name(&self) -> &str {
        "embedding"
    }

    fn run(&self, cx: &mut RunCx<'_>) -> Result<(), RunError> {
        let table = match &self.table {
            Table::Weight(w) => w.bytes().map_err(|e| RunError::Internal(e.to_string()))?,
            Table::Input(at) => cx.inputs.bytes(*at)?,
        };
        let (_, dst) = cx.outputs.take_bytes(0)?;
        take_blocks(cx.par, &cx.inputs, self.input, table, dst, (1, self.rows, self.row_bytes))
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, error, iota, op, op_with, tensor, try_op, values};
    use crate::{RunError, eager::EagerError};

    #[test]
    fn rows_are_looked_up() {
        let line = "nn.Embedding e 1 1 0 1 embedding_dim=3 num_embeddings=4 sparse=False $input=0";
        let operator = op_with(line, &[("weight", iota([4, 3]))]);
        let y = check(&*operator, &[tensor([2, 2], &[3i64, 0, 1, 3])]);
        assert_eq!(y[0].shape().dims(), [2, 2, 3]);
        assert_eq!(values::<f32>(&y[0]), [9., 10., 11., 0., 1., 2., 3., 4., 5., 9., 10., 11.]);
        assert_eq!(check(&*operator, &[tensor([], &[1i32])])[0].shape().dims(), [3]);
        assert_eq!(check(&*operator, &[tensor([0], &[0i32; 0])])[0].shape().dims(), [0, 3]);

        for bad in [4, -1] {
            let e = error(&*operator, &[tensor([1], &[bad])]);
            let what = format!("index {bad} is outside 0..4");
            assert_eq!(e, EagerError::Run(RunError::Value { input: 0, what }));
        }
        assert!(error(&*operator, &[iota([1])]).to_string().contains("i64 or i32"));
        assert!(try_op(line, &[("weight", iota([3, 4]))]).is_err());
        assert!(try_op(&format!("{line} max_norm=1.0"), &[("weight", iota([4, 3]))]).is_err());
    }

    #[test]
    fn the_table_may_be_an_input() {
        let operator =
            op("F.embedding e 2 1 0 1 2 scale_grad_by_freq=False sparse=False $input=0 $weight=1");
        let y = check(&*operator, &[tensor([2], &[1i32, 0]), iota([2, 2])]);
        assert_eq!(values::<f32>(&y[0]), [2., 3., 0., 1.]);
    }
}
