//! Gradients of samples: `torch.gradient`.
//!
//! <https://pytorch.org/docs/stable/generated/torch.gradient.html>: half the difference of the two
//! neighbours over their distance, at the ends by one or two elements inwards. One tensor for each
//! dimension.

use crate::support::composite::{Compose, StepText, composed};
use crate::support::rearrange::invalid;
use crate::support::several::list_of;
use crate::support::steps::{Composed, Composite};
use crate::{
    BuildError, Expansion, NodeReader, Operator, ShapeError, TensorValue, ValueSpec, register_op,
};

#[derive(Debug)]
struct Gradient {
    input: usize,
    /// Of all dimensions, or of each.
    spacing: Vec<f64>,
    /// None: all.
    dims: Option<Vec<i64>>,
    edge_order: i64,
}

fn build(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let spacing = r.or("spacing", vec![1.0])?;
    if spacing.is_empty() || spacing.contains(&0.0) {
        return Err(r.bad("spacing", "numbers other than 0"));
    }
    let (dims, edge_order) = (r.optional::<Vec<i64>>("dim")?, r.or("edge_order", 1)?);
    if !matches!(edge_order, 1 | 2) {
        return Err(r.bad("edge_order", "1 or 2"));
    }
    let dims = dims.filter(|dims| !dims.is_empty());
    let input = r.required_input("input")?;
    Ok(Box::new(Composite(Gradient { input, spacing, dims, edge_order })))
}
register_op!(build => "torch.gradient");

impl Composed for Gradient {
    fn name(&self) -> &str {
        "gradient"
    }

    fn expansion(&self, inputs: &[ValueSpec]) -> Result<Expansion, ShapeError> {
        let shape = TensorValue::at(inputs, self.input)?.shape();
        let dims: Vec<usize> = match &self.dims {
            None => (0..shape.rank()).collect(),
            Some(dims) => crate::support::rearrange::distinct_dims(shape, dims)?,
        };
        if self.spacing.len() != 1 && self.spacing.len() != dims.len() {
            let text = format!("{} distances for {} dimensions", self.spacing.len(), dims.len());
            return Err(invalid(text));
        }
        let spacing = self.spacing.iter().cycle();
        let part = |(&dim, &spacing): (&usize, &f64)| {
            let (input, edge_order) = (self.input, self.edge_order);
            composed(Along { input, dim, spacing, edge_order }).map_err(|e| invalid(e.to_string()))
        };
        let parts = dims.iter().zip(spacing).map(part).collect::<Result<_, _>>()?;
        list_of("gradient", parts, inputs)
    }
}

/// Along one dimension.
#[derive(Debug)]
struct Along {
    input: usize,
    dim: usize,
    spacing: f64,
    edge_order: i64,
}

impl Compose for Along {
    fn name(&self) -> &'static str {
        "gradient"
    }

    fn inputs(&self) -> Vec<usize> {
        vec![self.input]
    }

    fn steps(&self, inputs: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let (&[x], dim) = (inputs, self.dim) else { return Err(invalid("one tensor")) };
        let size = x.shape().get(dim).copied().unwrap_or(0);
        let least = if self.edge_order == 1 { 2 } else { 3 };
        if size < least {
            let (input, found) = (self.input, x.shape().clone());
            let expected = format!("at least {least}");
            return Err(ShapeError::Size { input, dim, expected, found });
        }
        let mut steps = Vec::new();
        let mut part = |name: &str, start: usize, end: usize| {
            let range = format!("dim={dim} start={start} end={end} step=1");
            steps.push(StepText::new("Tensor.slice", &["x0"], name, &range));
        };
        part("low", 0, size - 2);
        part("high", 2, size);
        for (i, name) in ["a", "b", "c"].iter().enumerate().take(least) {
            part(name, i, i + 1);
        }
        for (i, name) in ["z", "y", "w"].iter().enumerate().take(least) {
            part(name, size - i - 1, size - i);
        }
        let h = self.spacing;
        let of = |text: String, inputs: &[&str], output: &str| {
            StepText::new("pnnx.Expression", inputs, output, &format!("expr={text}"))
        };
        steps.push(of(format!("div(div(sub(@1,@0),{h:e}),2.0)"), &["low", "high"], "inner"));
        for (ends, output, sign) in
            [(["a", "b", "c"], "first", 1.0), (["z", "y", "w"], "last", -1.0)]
        {
            let text = match self.edge_order {
                1 => format!("div(sub(@1,@0),{:e})", sign * h),
                _ => {
                    let [a, b, c] = [-1.5, 2.0, -0.5].map(|factor: f64| factor * sign / h);
                    format!("add(add(mul(@0,{a:e}),mul(@1,{b:e})),mul(@2,{c:e}))")
                }
            };
            steps.push(of(text, &ends[..least], output));
        }
        let dims = format!("dim={dim}");
        steps.push(StepText::new("torch.cat", &["first", "inner", "last"], "gradient", &dims));
        Ok(steps)
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{check, error, iota, op, tensor, try_op};

    #[test]
    fn along_one_dimension_and_all() {
        let x = tensor([5], &[1.0f32, 4.0, 9.0, 16.0, 25.0]);
        let run = |line: &str| check(&*op(line), std::slice::from_ref(&x)).remove(0);
        let y = run("torch.gradient g 1 1 0 1 $input=0");
        assert_eq!(y, tensor([5], &[3.0f32, 4.0, 6.0, 8.0, 9.0]));
        let y = run("torch.gradient g 1 1 0 1 spacing=2 dim=-1 edge_order=2");
        assert_eq!(y, tensor([5], &[1.0f32, 2.0, 3.0, 4.0, 5.0]));
        let both = check(&*op("torch.gradient g 1 1 0 1 spacing=(1.0,0.5)"), &[iota([2, 2])]);
        assert_eq!(both, [tensor([2, 2], &[2.0f32; 4]), tensor([2, 2], &[2.0f32; 4])]);
        let whole = check(&*op("torch.gradient g 1 1 0 1 dim=(1)"), &[tensor([1, 2], &[1i64, 4])]);
        assert_eq!(whole[0], tensor([1, 2], &[3.0f32, 3.0]));
        error(&*op("torch.gradient g 1 1 0 1"), &[iota([1])]);
        error(&*op("torch.gradient g 1 1 0 1 spacing=(1,2,3)"), &[iota([2, 2])]);
        assert!(try_op("torch.gradient g 1 1 0 1 spacing=0", &[]).is_err());
    }
}
