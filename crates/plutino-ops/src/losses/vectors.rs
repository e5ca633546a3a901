//! Losses of distances and angles between vectors.

use super::Reduction;
use crate::support::composite::{Compose, StepText, composed, number};
use crate::support::rearrange::invalid;
use crate::{BuildError, NodeReader, Operator, ShapeError, TensorValue, register_op};

fn expression(text: &str, inputs: &[&str], output: &str) -> StepText {
    StepText::new("pnnx.Expression", inputs, output, &format!("expr={text}"))
}

#[derive(Debug)]
struct Triplet {
    inputs: [usize; 3],
    margin: f64,
    p: f64,
    eps: f64,
    swap: bool,
    reduction: Reduction,
}

/// <https://pytorch.org/docs/stable/generated/torch.nn.TripletMarginLoss.html>
fn triplet(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (margin, p, eps) = (r.or("margin", 1.0)?, r.or("p", 2.0)?, r.or("eps", 1e-6)?);
    let (swap, reduction) = (r.or("swap", false)?, Reduction::read(r)?);
    let [a, b, c] = ["anchor", "positive", "negative"].map(|key| r.required_input(key));
    composed(Triplet { inputs: [a?, b?, c?], margin, p, eps, swap, reduction })
}
register_op!(triplet => "F.triplet_margin_loss", "nn.TripletMarginLoss");

impl Compose for Triplet {
    fn name(&self) -> &'static str {
        "triplet_margin_loss"
    }

    fn inputs(&self) -> Vec<usize> {
        self.inputs.to_vec()
    }

    fn steps(&self, _: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let text = format!("p={} eps={:e}", number(self.p), self.eps);
        let distance = |a, b, to: &str| StepText::new("F.pairwise_distance", &[a, b], to, &text);
        let mut steps = vec![distance("x0", "x1", "near"), distance("x0", "x2", "far")];
        let mut far = "far";
        if self.swap {
            steps.push(distance("x1", "x2", "other"));
            steps.push(expression("minimum(@0,@1)", &["far", "other"], "least"));
            far = "least";
        }
        let losses = format!("maximum(sub(add(@0,{:e}),@1),0)", self.margin);
        steps.push(expression(&losses, &["near", far], "losses"));
        steps.extend(self.reduction.step("losses", 1));
        Ok(steps)
    }
}

#[derive(Debug)]
struct CosineEmbedding {
    inputs: [usize; 3],
    margin: f64,
    reduction: Reduction,
}

/// <https://pytorch.org/docs/stable/generated/torch.nn.CosineEmbeddingLoss.html>
fn cosine(r: &mut NodeReader<'_>) -> Result<Box<dyn Operator>, BuildError> {
    let (margin, reduction) = (r.or("margin", 0.0)?, Reduction::read(r)?);
    let [a, b, c] = ["input1", "input2", "target"].map(|key| r.required_input(key));
    composed(CosineEmbedding { inputs: [a?, b?, c?], margin, reduction })
}
register_op!(cosine => "F.cosine_embedding_loss", "nn.CosineEmbeddingLoss");

impl Compose for CosineEmbedding {
    fn name(&self) -> &'static str {
        "cosine_embedding_loss"
    }

    fn inputs(&self) -> Vec<usize> {
        self.inputs.to_vec()
    }

    fn steps(&self, inputs: &[&TensorValue]) -> Result<Vec<StepText>, ShapeError> {
        let &[a, b, target] = inputs else { return Err(invalid("three tensors")) };
        let dim = target.shape().rank();
        if dim > 1 || a.shape().rank() != dim + 1 || b.shape().rank() != dim + 1 {
            let text = format!(
                "vectors and targets are (N, D) and (N), or (D) and (), not {}, {} and {}",
                a.shape(),
                b.shape(),
                target.shape()
            );
            return Err(invalid(text));
        }
        let mut steps = Vec::new();
        let dims = format!("dim=({dim}) keepdim=False");
        for (name, product) in
            [("products", "mul(@0,@1)"), ("first", "mul(@0,@0)"), ("second", "mul(@1,@1)")]
        {
            let each = format!("{name}_each");
            steps.push(expression(product, &["x0", "x1"], &each));
            steps.push(StepText::new("torch.sum", &[&each], name, &dims));
        }
        let cosine = "div(@0,sqrt(mul(add(@1,1.000000e-12),add(@2,1.000000e-12))))";
        steps.push(expression(cosine, &["products", "first", "second"], "cosines"));
        let apart = format!("maximum(sub(@0,{:e}),0)", self.margin);
        let (is_one, is_minus) = ("$input=x2 other=1", "$input=x2 other=-1");
        steps.extend([
            StepText::new("torch.eq", &["x2"], "alike", is_one),
            StepText::new("torch.eq", &["x2"], "unlike", is_minus),
            expression("sub(1,@0)", &["cosines"], "near"),
            expression(&apart, &["cosines"], "apart"),
        ]);
        for (condition, input, output) in [("alike", "near", "one"), ("unlike", "apart", "two")] {
            let text = format!("$condition={condition} $input={input} other=0");
            steps.push(StepText::new("torch.where", &[condition, input], output, &text));
        }
        steps.push(expression("add(@0,@1)", &["one", "two"], "losses"));
        steps.extend(self.reduction.step("losses", 1));
        Ok(steps)
    }
}

#[cfg(test)]
mod tests {
    use crate::testkit::{assert_close, check, error, iota, op, tensor};

    #[test]
    fn distances_of_three() {
        let rows = |x: [f32; 4]| tensor([2, 2], &x);
        let all = [rows([0.0; 4]), rows([3.0, 4.0, 0.0, 1.0]), rows([0.0, 1.0, 6.0, 8.0])];
        let run = |line: &str| check(&*op(line), &all).remove(0);
        let line = "F.triplet_margin_loss t 3 1 0 1 2 3 eps=0.0 reduction=none $anchor=0 $positive=1 $negative=2";
        assert_close(&run(line), &tensor([2], &[5.0f32, 0.0]), 1e-5);
        let line =
            "nn.TripletMarginLoss t 3 1 0 1 2 3 margin=12.0 swap=True p=1 eps=0.0 reduction=sum";
        assert_close(&run(line), &tensor([], &[18.0f32]), 1e-4);
    }

    #[test]
    fn angles() {
        let (a, b) =
            (tensor([2, 2], &[1.0f32, 0.0, 1.0, 0.0]), tensor([2, 2], &[0.0f32, 1.0, 1.0, 1.0]));
        let target = tensor([2], &[1i64, -1]);
        let all = [a, b, target];
        let run = |line: &str| check(&*op(line), &all).remove(0);
        let line = "F.cosine_embedding_loss c 3 1 0 1 2 3 margin=0.5 reduction=none";
        assert_close(&run(line), &tensor([2], &[1.0f32, 0.207_106_77]), 1e-5);
        error(&*op("F.cosine_embedding_loss c 3 1 0 1 2 3"), &[iota([2]), iota([2]), iota([2])]);
    }
}
