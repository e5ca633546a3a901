//! Sums of convolutions of one image, and what is broadcast.

use super::{Generator, Value};

impl Generator {
    /// Convolutions of one image and a batch norm of it, some of them times numbers of channels,
    /// added in one expression or in several.
    pub(super) fn branches(&mut self, x: &Value) {
        let &[_, c, h, w] = &x.dims[..] else { unreachable!() };
        let mut summands = Vec::new();
        for _ in 0..1 + self.random.below(3) {
            let kernel = 1 + 2 * self.random.below(2);
            let groups = [1, c][self.random.below(2)];
            let y = self.conv(x, c, kernel, 1, groups);
            // Without padding it is another size.
            if y.dims[2..] == [h, w] {
                summands.push(y);
            }
        }
        if self.random.below(2) == 0 {
            summands.push(self.batch_norm(x));
        }
        if self.random.below(3) == 0 {
            summands.push(x.clone());
        }
        let mut sum = x.clone();
        for (i, y) in summands.into_iter().enumerate() {
            let scaled = match self.random.below(3) {
                0 => self.of_channels(&y),
                _ => y,
            };
            let (most, error) = (sum.most + scaled.most, sum.error + scaled.error);
            let bounds = (&x.dims[..], most, error + 8.0 * most);
            sum = match i {
                0 => scaled,
                _ => self.push("pnnx.Expression", &[&sum, &scaled], bounds, "expr=add(@0,@1)"),
            };
        }
        if self.random.below(3) == 0 {
            self.batch_norm(&sum);
        }
    }

    /// An image times a constant number for each channel.
    fn of_channels(&mut self, x: &Value) -> Value {
        let c = x.dims[1];
        let name = self.line("pnnx.Attribute", &[], 1, &format!("@data=({c},1,1)f32")).remove(0);
        let data = self.random.numbers(c);
        self.weight("data", data);
        let factors = Value { name, dims: Vec::new(), most: 1.0, error: 0.0 };
        let bounds = (&x.dims[..], x.most, x.error + x.most);
        self.push("pnnx.Expression", &[x, &factors], bounds, "expr=mul(@0,@1)")
    }

    /// The sum with the magnitudes of a constant that is broadcast.
    pub(super) fn constant(&mut self, x: &Value) -> Value {
        let dims = match x.dims[..] {
            [_, c, _, _] => vec![1, c, 1, 1],
            _ => vec![*x.dims.last().unwrap()],
        };
        let text: Vec<String> = dims.iter().map(ToString::to_string).collect();
        let rest = format!("@data=({})f32", text.join(","));
        let constant = self.line("pnnx.Attribute", &[], 1, &rest).remove(0);
        let data = self.random.numbers(dims.iter().product());
        self.weight("data", data);
        let size = self.line("torch.abs", &[&constant], 1, "").remove(0);
        let size = Value { name: size, dims, most: 1.0, error: 0.0 };
        let bounds = (&x.dims[..], x.most + 1.0, x.error + x.most + 1.0);
        self.push("pnnx.Expression", &[x, &size], bounds, "expr=add(@0,@1)")
    }
}
