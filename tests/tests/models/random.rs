//! Random graphs of real operators: whatever passes fuse, fold, lay out or leave out, results are
//! those of the operators as the file has them, within a bound that is computed with the graph.
//!
//! Each value of a graph carries the largest magnitude it can have and the largest error that an
//! execution may have made up to there. Weights are scaled so that neither grows much.

mod branches;

use plutino::ir::Graph;
use plutino::{DType, MemoryUse, Model, Precision, SessionOptions, StepInfo, Tensor, Units};
use plutino_tests::{run, specs};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

/// Numbers that are the same for the same seed (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// Between -1 and 1.
    fn number(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    }

    fn numbers(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.number()).collect()
    }
}

/// A value: shape, bound of its magnitude, bound of its error in units of f32's epsilon.
#[derive(Clone)]
struct Value {
    name: String,
    dims: Vec<usize>,
    most: f64,
    error: f64,
}

/// A graph in the making.
struct Generator {
    random: Random,
    lines: Vec<String>,
    operands: usize,
    values: Vec<Value>,
    weights: HashMap<(String, &'static str), Vec<f32>>,
}

/// What Winograd's transforms may multiply rounding errors by, for the tiles that are used.
const WINOGRAD: f64 = 64.0;

impl Generator {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let channels = [3, 4, 8, 16, 32][random.below(5)];
        let dims = vec![1 + random.below(2), channels, 4 + random.below(6), 4 + random.below(6)];
        let input = Value { name: "x".into(), dims, most: 1.0, error: 0.0 };
        let lines = vec!["pnnx.Input in 0 1 x".to_owned()];
        let values = vec![input];
        Self { random, lines, operands: 1, values, weights: HashMap::new() }
    }

    /// A new line; returns the names of its outputs.
    fn line(&mut self, kind: &str, inputs: &[&str], outputs: usize, rest: &str) -> Vec<String> {
        let names: Vec<String> = (0..outputs).map(|i| format!("v{}", self.operands + i)).collect();
        self.operands += outputs;
        let op = self.lines.len();
        let mut line = format!("{kind} op{op} {} {outputs}", inputs.len());
        inputs.iter().for_each(|i| write!(line, " {i}").unwrap());
        names.iter().for_each(|o| write!(line, " {o}").unwrap());
        write!(line, " {rest}").unwrap();
        self.lines.push(line);
        names
    }

    /// A line with one output of this shape, magnitude and error.
    fn push(
        &mut self,
        kind: &str,
        inputs: &[&Value],
        (dims, most, error): (&[usize], f64, f64),
        rest: &str,
    ) -> Value {
        let names: Vec<&str> = inputs.iter().map(|v| v.name.as_str()).collect();
        let name = self.line(kind, &names, 1, rest).remove(0);
        let value = Value { name, dims: dims.to_vec(), most, error };
        self.values.push(value.clone());
        value
    }

    fn weight(&mut self, key: &'static str, data: Vec<f32>) {
        let op = format!("op{}", self.lines.len() - 1);
        self.weights.insert((op, key), data);
    }

    /// Rows whose magnitudes sum to 1.
    fn rows(&mut self, rows: usize, width: usize) -> Vec<f32> {
        let mut all = self.random.numbers(rows * width);
        for row in all.chunks_exact_mut(width) {
            let sum: f32 = row.iter().map(|x| x.abs()).sum::<f32>().max(0.1);
            row.iter_mut().for_each(|x| *x /= sum);
        }
        all
    }

    /// A convolution of `x` to so many channels.
    fn conv(
        &mut self,
        x: &Value,
        out: usize,
        kernel: usize,
        stride: usize,
        groups: usize,
    ) -> Value {
        let &[n, c, ref spatial @ ..] = &x.dims[..] else { unreachable!() };
        // Of lines and volumes, too, where padding makes up for a depth of one.
        let least = *spatial.iter().min().unwrap();
        let kernel = if spatial.len() == 2 && least < kernel { 1 } else { kernel };
        let pad = if least < kernel { 1 } else { self.random.below(2).min(kernel - 1) };
        let size = |&n: &usize| (n + 2 * pad - kernel) / stride + 1;
        let taps = c / groups * kernel.pow(spatial.len() as u32);
        let bias = self.random.below(2) == 0;
        let dims: Vec<usize> = [n, out].into_iter().chain(spatial.iter().map(size)).collect();
        let most = x.most + if bias { 1.0 } else { 0.0 };
        let error = x.error + (taps as f64 + 4.0) * most * if kernel > 1 { WINOGRAD } else { 1.0 };
        let all = |n: usize| vec![n.to_string(); spatial.len()].join(",");
        let text = format!(
            "bias={} dilation=({}) groups={groups} in_channels={c} kernel_size=({}) \
             out_channels={out} padding=({}) padding_mode=zeros stride=({}) \
             {} @weight=({out},{},{})f32",
            if bias { "True" } else { "False" },
            all(1),
            all(kernel),
            all(pad),
            all(stride),
            if bias { format!("@bias=({out})f32") } else { String::new() },
            c / groups,
            all(kernel),
        );
        let kind = format!("nn.Conv{}d", spatial.len());
        let y = self.push(&kind, &[x], (&dims, most, error), &text);
        let weight = self.rows(out, taps);
        self.weight("weight", weight);
        if bias {
            let bias = self.random.numbers(out);
            self.weight("bias", bias);
        }
        y
    }

    /// A depthwise convolution, mostly with 1x1 convolutions and activations beside it.
    fn depthwise(&mut self, x: &Value) {
        let (mut x, stride) = (x.clone(), 1 + self.random.below(2));
        if self.random.below(4) > 0 {
            let out = [6, 16, 40][self.random.below(3)];
            let wide = self.conv(&x, out, 1, 1, 1);
            x = self.activation(&wide);
        }
        // Now and then several results of each channel.
        let channels = x.dims[1];
        let each = if self.random.below(4) == 0 { 2 + self.random.below(3) } else { 1 };
        let mut y = self.conv(&x, each * channels, 3, stride, channels);
        if self.random.below(2) == 0 {
            y = self.activation(&y);
        }
        if self.random.below(4) > 0 {
            self.conv(&y, 8, 1, 1, 1);
        }
    }

    fn linear(&mut self, x: &Value, out: usize) -> Value {
        let features = *x.dims.last().unwrap();
        let mut dims = x.dims.clone();
        *dims.last_mut().unwrap() = out;
        let bias = self.random.below(2) == 0;
        let most = x.most + if bias { 1.0 } else { 0.0 };
        let error = x.error + (features as f64 + 4.0) * most;
        let text = format!(
            "bias={} in_features={features} out_features={out} {} @weight=({out},{features})f32",
            if bias { "True" } else { "False" },
            if bias { format!("@bias=({out})f32") } else { String::new() },
        );
        if self.random.below(4) == 0 {
            return self.linear_of_values(x, (&dims, most, error), bias);
        }
        let y = self.push("nn.Linear", &[x], (&dims, most, error), &text);
        let weight = self.rows(out, features);
        self.weight("weight", weight);
        if bias {
            let bias = self.random.numbers(out);
            self.weight("bias", bias);
        }
        y
    }

    /// The same with weights that are values, as those are written that layers share.
    fn linear_of_values(&mut self, x: &Value, bounds: (&[usize], f64, f64), bias: bool) -> Value {
        let (features, out) = (*x.dims.last().unwrap(), *bounds.0.last().unwrap());
        let rest = format!("@data=({out},{features})f32");
        let mut inputs = vec![self.line("pnnx.Attribute", &[], 1, &rest).remove(0)];
        let data = self.rows(out, features);
        self.weight("data", data);
        let mut rest = "bias=None";
        if bias {
            inputs
                .push(self.line("pnnx.Attribute", &[], 1, &format!("@data=({out})f32")).remove(0));
            let data = self.random.numbers(out);
            self.weight("data", data);
            rest = "";
        }
        let value = |name: String| Value { name, dims: Vec::new(), most: 1.0, error: 0.0 };
        let values: Vec<Value> = inputs.into_iter().map(value).collect();
        let all: Vec<&Value> = std::iter::once(x).chain(&values).collect();
        self.push("F.linear", &all, bounds, rest)
    }

    fn batch_norm(&mut self, x: &Value) -> Value {
        let channels = x.dims[1];
        let kind = match x.dims.len() {
            4 => "nn.BatchNorm2d",
            5 => "nn.BatchNorm3d",
            _ => "nn.BatchNorm1d",
        };
        // |weight| / sqrt(variance + eps) is at most 1, the mean at most 1.
        let most = x.most + 2.0;
        let text = format!(
            "affine=True eps=1e-3 num_features={channels} @bias=({channels})f32 @running_mean=({channels})f32 \
             @running_var=({channels})f32 @weight=({channels})f32"
        );
        let y = self.push(kind, &[x], (&x.dims, most, x.error + 8.0 * most), &text);
        for key in ["weight", "bias", "running_mean"] {
            let data = self.random.numbers(channels);
            self.weight(key, data);
        }
        let variance = self.random.numbers(channels).into_iter().map(|v| 1.0 + v.abs()).collect();
        self.weight("running_var", variance);
        y
    }

    /// What does the same with each element: slope at most 1.2.
    fn activation(&mut self, x: &Value) -> Value {
        let (kind, rest, most) = [
            ("nn.ReLU", "", x.most),
            ("F.silu", "", x.most),
            ("F.gelu", "", x.most),
            ("nn.Sigmoid", "", 1.0),
            ("F.tanh", "", 1.0),
            ("nn.Hardswish", "", x.most),
            ("nn.LeakyReLU", "negative_slope=0.1", x.most),
            ("nn.ReLU6", "", x.most.min(6.0)),
            ("torch.clamp", "max=0.5 min=-0.5", 0.5),
            ("nn.Dropout", "p=0.5", x.most),
            ("pnnx.Expression", "expr=mul(@0,add(@0,-0.5))", x.most * (x.most + 0.5)),
            ("pnnx.Expression", "expr=neg(@0)", x.most),
            ("torch.abs", "", x.most),
        ][self.random.below(13)];
        let slope = if rest.contains("mul") { 2.0 * x.most + 0.5 } else { 1.2 };
        self.push(kind, &[x], (&x.dims, most, slope * x.error + 8.0 * most.max(x.most)), rest)
    }

    /// An activation function as models write it out: slope at most 1.5.
    fn formula(&mut self, x: &Value) -> Value {
        let (dims, most) = (&x.dims[..], x.most);
        // Of the function as of each of its steps: numbers, a few roundings of what x is at most.
        let result = (dims, most, 1.5 * x.error + 32.0 * most.max(1.0));
        match self.random.below(5) {
            0 => {
                let gate = (dims, 1.0, x.error + 8.0);
                let gate = self.push("nn.Sigmoid", &[x], gate, "");
                self.push("pnnx.Expression", &[&gate, x], result, "expr=mul(@0,@1)")
            }
            1 => {
                let cube = 0.8 * (most + 0.045 * most.powi(3));
                let slope = 0.8 + 0.11 * most * most;
                let expr = "expr=mul(add(@0,mul(pow(@1,3.0),0.044715)),0.797884583)";
                let bounds = (dims, cube, slope * x.error + 8.0 * cube);
                let inner = self.push("pnnx.Expression", &[x, x], bounds, expr);
                let bounds = (dims, 1.0, inner.error + 8.0);
                let tanh = self.push("F.tanh", &[&inner], bounds, "");
                let expr = "expr=mul(mul(@0,0.5),add(@1,1.0))";
                self.push("pnnx.Expression", &[x, &tanh], result, expr)
            }
            2 => {
                let shifted = (dims, most + 3.0, x.error + most + 3.0);
                let shifted = self.push("pnnx.Expression", &[x], shifted, "expr=add(@0,3)");
                let bounds = (dims, 6.0, shifted.error);
                let gate = self.push("F.relu6", &[&shifted], bounds, "");
                self.push("pnnx.Expression", &[x, &gate], result, "expr=div(mul(@0,@1),6)")
            }
            3 => {
                let expr = "expr=mul(mul(@0,0.5),add(erf(div(@0,1.414214e+00)),1.0))";
                self.push("pnnx.Expression", &[x], result, expr)
            }
            _ => {
                let expr = "expr=mul(@0,tanh(log(add(exp(@0),1.0))))";
                self.push("pnnx.Expression", &[x], result, expr)
            }
        }
    }

    /// Another value of this shape.
    fn like(&mut self, x: &Value) -> Value {
        let same: Vec<_> = self.values.iter().filter(|v| v.dims == x.dims).cloned().collect();
        same[self.random.below(same.len())].clone()
    }

    fn binary(&mut self, x: &Value) -> Value {
        let y = self.like(x);
        let sum = (x.most + y.most, x.error + y.error + x.most + y.most);
        let product = x.most * y.most;
        let error = x.most * y.error + y.most * x.error + product;
        match self.random.below(4) {
            0 => self.push("torch.mul", &[x, &y], (&x.dims, product, error), ""),
            1 => self.push("pnnx.Expression", &[x, &y], (&x.dims, sum.0, sum.1), "expr=sub(@0,@1)"),
            2 => self.push("torch.maximum", &[x, &y], (&x.dims, sum.0, sum.1), ""),
            _ => self.push("pnnx.Expression", &[x, &y], (&x.dims, sum.0, sum.1), "expr=add(@0,@1)"),
        }
    }

    /// The image as a line or a volume, with convolutions and what lies between them.
    fn line_or_volume(&mut self, x: &Value) {
        let &[n, c, h, w] = &x.dims[..] else { unreachable!() };
        let dims = match self.random.below(3) {
            0 => vec![n, c, h * w],
            1 if h % 2 == 0 => vec![n, c, 2, h / 2, w],
            _ => vec![n, c, 1, h, w],
        };
        let shape = |dims: &[usize]| {
            format!("shape=({})", format!("{dims:?}").trim_matches(['[', ']']).replace(' ', ""))
        };
        let mut x = self.push("Tensor.view", &[x], (&dims, x.most, x.error), &shape(&dims));
        for _ in 0..1 + self.random.below(3) {
            x = match self.random.below(7) {
                4 => {
                    let (c, groups) = (x.dims[1], [1, x.dims[1]][self.random.below(2)]);
                    let len: usize = c / groups * x.dims[2..].iter().product::<usize>();
                    // With this epsilon no difference grows.
                    let rest = format!("affine=False eps=1.0 num_channels={c} num_groups={groups}");
                    let error = 3.0 * x.error + (len as f64 + 8.0) * 2.0 * x.most;
                    self.push("nn.GroupNorm", &[&x], (&x.dims, 2.0 * x.most, error), &rest)
                }
                0 => self.batch_norm(&x),
                1 => self.activation(&x),
                2 => self.binary(&x),
                3 if x.dims[1].is_multiple_of(2) => {
                    let names = self.line("torch.chunk", &[&x.name], 2, "chunks=2 dim=1");
                    let mut dims = x.dims.clone();
                    dims[1] /= 2;
                    let half = Value { name: names[1].clone(), dims, ..x };
                    self.values.push(half.clone());
                    half
                }
                _ => {
                    let (out, kernel) = ([5, 16, 32][self.random.below(3)], self.random.below(2));
                    let stride = 1 + self.random.below(2);
                    self.conv(&x, out, 1 + 2 * kernel, stride, 1)
                }
            };
        }
        // Back to an image.
        let &[n, c, .., w] = &x.dims[..] else { unreachable!() };
        let dims = [n, c, x.dims[2..].iter().product::<usize>() / w, w];
        self.push("Tensor.reshape", &[&x], (&dims, x.most, x.error), &shape(&dims));
    }

    /// A step that starts from an image.
    fn image(&mut self, x: &Value) {
        let &[n, c, h, w] = &x.dims[..] else { unreachable!() };
        match self.random.below(22) {
            21 if h > 2 && w > 2 => self.branches(x),
            19 | 20 if h > 0 && w > 0 => self.line_or_volume(x),
            18 => {
                self.constant(x);
            }
            0 | 1 => {
                let out = [4, 8, 16, 24, 32][self.random.below(5)];
                self.conv(x, out, 1, 1, 1);
            }
            2 | 3 if h > 2 && w > 2 => {
                let (out, stride) =
                    ([3, 8, 16, 32][self.random.below(4)], 1 + self.random.below(2));
                self.conv(x, out, 3, stride, 1);
            }
            4 if h > 2 && w > 2 => {
                self.depthwise(x);
            }
            5 => {
                let conv = self.conv(x, c, 1, 1, 1);
                let norm = self.batch_norm(&conv);
                if self.random.below(2) == 0 {
                    self.activation(&norm);
                } else {
                    self.formula(&norm);
                }
            }
            6 => {
                self.batch_norm(x);
            }
            7 if h < 12 && w < 12 => {
                let dims = [n, c, h + 1, w + 3];
                let rest = "mode=constant pad=(1,2,0,1) value=0.0";
                let same = (&dims[..], x.most, x.error);
                let padded = self.push("F.pad", &[x], same, rest);
                self.conv(&padded, 8, 3, 1, 1);
            }
            8 if h < 12 && w < 12 => {
                let dims = [n, c, h + 2, w + 2];
                self.push("nn.ZeroPad2d", &[x], (&dims, x.most, x.error), "padding=(1,1,1,1)");
            }
            9 if h > 1 && w > 1 => {
                let rest = "ceil_mode=False dilation=(1,1) kernel_size=(2,2) padding=(0,0) \
                            return_indices=False stride=(2,2)";
                let dims = [n, c, h / 2, w / 2];
                self.push("nn.MaxPool2d", &[x], (&dims, x.most, x.error), rest);
            }
            10 => {
                // Squeeze and excite.
                let error = x.error + (h * w) as f64 * x.most;
                let dims = [n, c, 1, 1];
                let rest = "output_size=(1,1)";
                let mean = self.push("F.adaptive_avg_pool2d", &[x], (&dims, x.most, error), rest);
                let wide = self.conv(&mean, c, 1, 1, 1);
                let error = wide.error + 8.0;
                let factors = self.push("nn.Sigmoid", &[&wide], (&dims, 1.0, error), "");
                let error = x.error + x.most * factors.error + x.most;
                let rest = "expr=mul(@0,@1)";
                let scaled =
                    self.push("pnnx.Expression", &[&factors, x], (&x.dims, x.most, error), rest);
                self.conv(&scaled, 8, 1, 1, 1);
            }
            11 => {
                let y = self.like(x);
                let parts: Vec<&Value> =
                    [x, &y].into_iter().take(1 + self.random.below(2)).collect();
                let most = parts.iter().map(|v| v.most).fold(0.0, f64::max);
                let error = parts.iter().map(|v| v.error).fold(0.0, f64::max);
                let dims = [n, c * parts.len(), h, w];
                let dim = ["dim=1", "dim=-3"][self.random.below(2)];
                self.push("torch.cat", &parts, (&dims, most, error), dim);
            }
            12 if c % 2 == 0 => {
                let names = self.line("torch.chunk", &[&x.name], 2, "chunks=2 dim=1");
                for name in names {
                    let dims = vec![n, c / 2, h, w];
                    self.values.push(Value { name, dims, ..x.clone() });
                }
            }
            13 if c % 2 == 0 => {
                let same = (&x.dims[..], x.most, x.error);
                if self.random.below(2) == 0 {
                    self.push("nn.ChannelShuffle", &[x], same, "groups=2");
                    return;
                }
                let cut = format!("shape=({n},2,{},{h},{w})", c / 2);
                let cut = self.line("Tensor.view", &[&x.name], 1, &cut).remove(0);
                let name = self.line("torch.transpose", &[&cut], 1, "dim0=1 dim1=2").remove(0);
                let exchanged = Value { name, ..x.clone() };
                let whole = format!("shape=({n},{c},{h},{w})");
                self.push("Tensor.reshape", &[&exchanged], same, &whole);
            }
            14 => {
                let last = self.push(
                    "torch.permute",
                    &[x],
                    (&[n, h, w, c], x.most, x.error),
                    "dims=(0,2,3,1)",
                );
                let wide = self.linear(&last, c);
                let same = (&x.dims[..], wide.most, wide.error);
                self.push("torch.permute", &[&wide], same, "dims=(0,3,1,2)");
            }
            15 => {
                let factor = 1 + self.random.below(2);
                let dims = [n, c, h * factor, w * factor];
                let rest = format!("mode=nearest scale_factor=({factor}.0,{factor}.0)");
                if h * factor < 16 {
                    self.push("F.interpolate", &[x], (&dims, x.most, x.error), &rest);
                }
            }
            16 => {
                let flat = format!("shape=({n},{c},{})", h * w);
                let dims = [n, c, h * w];
                let flat = self.push("Tensor.reshape", &[x], (&dims, x.most, x.error), &flat);
                let dims = [n, h * w, c];
                self.push("torch.permute", &[&flat], (&dims, x.most, x.error), "dims=(0,2,1)");
            }
            17 => {
                // Attention whose queries share the heads of keys and values.
                let rest = "dim=1 repeats=2 $input=".to_owned() + &x.name;
                let (dims, same) = ([n, 2 * c, h, w], (x.most, x.error));
                let bounds = (&dims[..], same.0, same.1);
                let wide = self.push("torch.repeat_interleave", &[x], bounds, &rest);
                let query = self.push("torch.cat", &[x, x], bounds, "dim=1");
                let (width, steps, most) = (w as f64, h as f64, x.most);
                let product = width.sqrt() * most * most;
                let error = width.sqrt() * (2.0 * most * x.error + (width + 3.0) * most * most);
                let soft = 2.0 * error + 4.0 * product + steps + 8.0;
                let error = x.error + steps * most * soft + steps * most;
                let rest = format!(
                    "attn_mask=None dropout_p=0.0 is_causal=False $query={} $key={key} $value={key}",
                    query.name,
                    key = wide.name
                );
                let kind = "F.scaled_dot_product_attention";
                self.push(kind, &[&query, &wide, &wide], (&dims, most, error), &rest);
            }
            _ => {
                self.binary(x);
            }
        }
    }

    /// A step that starts from rows of features.
    fn features(&mut self, x: &Value) {
        let (width, rank) = (*x.dims.last().unwrap(), x.dims.len());
        match self.random.below(12) {
            10 => {
                self.constant(x);
            }
            0 | 1 => {
                let out = [4, 8, 12, 16][self.random.below(4)];
                self.linear(x, out);
            }
            2 => {
                let wide = self.linear(x, 4 * width);
                let active = match self.random.below(2) {
                    0 => self.activation(&wide),
                    _ => self.formula(&wide),
                };
                self.linear(&active, width);
            }
            3 => {
                // With this epsilon no difference grows.
                let rest = format!("elementwise_affine=False eps=1.0 normalized_shape=({width})");
                let error = 3.0 * x.error + (width as f64 + 8.0) * 2.0 * x.most;
                self.push("nn.LayerNorm", &[x], (&x.dims, 2.0 * x.most, error), &rest);
            }
            4 => {
                let error = 2.0 * x.error + 4.0 * x.most + width as f64 + 8.0;
                self.push("F.softmax", &[x], (&x.dims, 1.0, error), "dim=-1");
            }
            5 | 11 if rank == 3 => {
                // Attention of one head; scores, or queries, are divided by the width.
                let (steps, most) = (x.dims[1], x.most);
                let before = self.random.below(2) == 0;
                let factor = if before { width as f64 } else { 1.0 };
                let by = format!("expr=div(@0,{width}.0)");
                let query = match before {
                    true => {
                        let bounds = (&x.dims[..], most / factor, (x.error + most) / factor);
                        self.push("pnnx.Expression", &[x], bounds, &by)
                    }
                    false => x.clone(),
                };
                let dims = [x.dims[0], width, steps];
                let key =
                    self.push("torch.transpose", &[x], (&dims, most, x.error), "dim0=1 dim1=2");
                let dims = [x.dims[0], steps, steps];
                let product = width as f64 * most * most / factor;
                let error = width as f64 / factor
                    * (2.0 * most * x.error + (width as f64 + 3.0) * most * most);
                let bounds = (&dims[..], product, error);
                let mut scores = self.push("torch.matmul", &[&query, &key], bounds, "");
                if !before {
                    let (most, error) = (product / width as f64, error / width as f64 + product);
                    let bounds = (&dims[..], most, error);
                    scores = self.push("pnnx.Expression", &[&scores], bounds, &by);
                }
                if self.random.below(2) == 0 {
                    // Two masks, the second one between views that group heads otherwise.
                    let biased = self.constant(&scores);
                    let four = [x.dims[0], 1, steps, steps];
                    let bounds = (&four[..], biased.most, biased.error);
                    let view = format!("shape=({},1,{steps},{steps})", x.dims[0]);
                    let viewed = self.push("Tensor.reshape", &[&biased], bounds, &view);
                    let masked = self.constant(&viewed);
                    let bounds = (&dims[..], masked.most, masked.error);
                    let view = format!("shape=(-1,{steps},{steps})");
                    scores = self.push("Tensor.reshape", &[&masked], bounds, &view);
                }
                let error = 2.0 * scores.error + 4.0 * scores.most + steps as f64 + 8.0;
                let soft = self.push("F.softmax", &[&scores], (&dims, 1.0, error), "dim=-1");
                let error = x.error + steps as f64 * x.most * soft.error + steps as f64 * x.most;
                self.push("torch.matmul", &[&soft, x], (&x.dims, x.most, error), "");
            }
            6 => {
                // Layer norm, written out.
                let (one, of) = ([&x.dims[..rank - 1], &[1]].concat(), width as f64);
                let error = x.error + of * x.most;
                let mean =
                    self.push("torch.mean", &[x], (&one, x.most, error), "dim=(-1) keepdim=True");
                let (most, error) = (2.0 * x.most, x.error + mean.error + 2.0 * x.most);
                let rest = "expr=sub(@0,@1)";
                let centred =
                    self.push("pnnx.Expression", &[x, &mean], (&x.dims, most, error), rest);
                let (square, error) = (most * most, 2.0 * most * error + most * most);
                let rest = "expr=pow(@0,2)";
                let squares =
                    self.push("pnnx.Expression", &[&centred], (&x.dims, square, error), rest);
                let error = squares.error + of * square;
                let rest = "dim=(-1) keepdim=True";
                let variance = self.push("torch.mean", &[&squares], (&one, square, error), rest);
                let error = centred.error + most * variance.error + 8.0 * most;
                let rest = "expr=div(@0,sqrt(add(@1,1.0)))";
                let inputs = [&centred, &variance];
                self.push("pnnx.Expression", &inputs, (&x.dims, most, error), rest);
            }
            7 if rank == 2 => {
                self.batch_norm(x);
            }
            7 => {
                // An operator that is others, one of whose inputs is a constant.
                let error = x.error + width as f64 * x.most;
                let (one, most) = (x.dims[..rank - 1].to_vec(), x.most * x.most);
                let names = self.line(
                    "torch.var_mean",
                    &[&x.name],
                    2,
                    "dim=(-1) keepdim=False unbiased=False",
                );
                let spread = 4.0 * x.most * error + width as f64 * most;
                for (name, (most, error)) in
                    names.into_iter().zip([(most, spread), (x.most, error)])
                {
                    self.values.push(Value { name, dims: one.clone(), most, error });
                }
                self.activation(x);
            }
            8 if rank == 3 => {
                let dims = [x.dims[0], width];
                let error = x.error + x.dims[1] as f64 * x.most;
                self.push("torch.mean", &[x], (&dims, x.most, error), "dim=(1) keepdim=False");
            }
            _ => {
                let active = self.activation(x);
                self.binary(&active);
            }
        }
    }

    /// The graph with its weights, and for each result what two executions may differ by.
    fn finish(mut self) -> (Graph, Vec<Value>) {
        let count = 1 + self.random.below(3);
        let mut results: Vec<Value> = vec![self.values.last().unwrap().clone()];
        for _ in 1..count {
            let at = self.random.below(self.values.len());
            results.push(self.values[at].clone());
        }
        for (i, result) in results.iter().enumerate() {
            self.lines.push(format!("pnnx.Output out{i} 1 0 {}", result.name));
        }
        let text =
            format!("7767517\n{} {}\n{}\n", self.lines.len(), self.operands, self.lines.join("\n"));
        let mut graph = Graph::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        for ((op, key), data) in &self.weights {
            let id = graph.operator_by_name(op).unwrap();
            let attr = graph.attrs_mut(id).unwrap().get_mut(*key).unwrap();
            attr.set_data(data.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>()).unwrap();
        }
        (graph, results)
    }
}

/// A graph of up to `steps` steps.
fn graph(seed: u64, steps: usize) -> (Graph, Vec<Value>, Tensor) {
    let mut g = Generator::new(seed);
    for _ in 0..1 + g.random.below(steps) {
        // Rather the last values, so that chains get long.
        let from = g.values.len() - 1 - g.random.below(g.values.len().min(3));
        let x = g.values[from].clone();
        if x.most > 100.0 || x.error > 1e5 {
            continue;
        }
        match x.dims.len() {
            4 => g.image(&x),
            _ => g.features(&x),
        }
    }
    let dims = g.values[0].dims.clone();
    let data = g.random.numbers(dims.iter().product());
    let (graph, results) = g.finish();
    (graph, results, Tensor::from_slice(&data, dims).unwrap())
}

/// Compares all passes with none, with low memory, and with each of `off` left out. Returns the
/// passes that found something to do.
fn agree(seed: u64, off: &[&str]) -> Vec<&'static str> {
    let (graph, results, input) = graph(seed, 10);
    let text = graph.to_param_string().unwrap();
    let model = Model::from_graph(graph).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}"));
    let options = || SessionOptions::default().with_threads(1);
    let inputs = [input];
    let expected = run(&model, &inputs, options().without_passes());
    let mut variants = vec![("all passes".to_owned(), options())];
    variants.push(("low memory".into(), options().with_memory(MemoryUse::Low)));
    for pass in off {
        variants.push((format!("without {pass}"), options().without_pass(*pass)));
    }
    for (what, options) in variants {
        let found = run(&model, &inputs, options);
        for ((found, expected), result) in found.iter().zip(&expected).zip(&results) {
            assert_eq!((found.dtype(), found.shape()), (DType::F32, expected.shape()));
            let (a, b) = (found.as_slice::<f32>().unwrap(), expected.as_slice::<f32>().unwrap());
            let bound = (2.0 * result.error + 8.0 * result.most) * f64::from(f32::EPSILON);
            for (x, y) in a.iter().zip(b) {
                let difference = f64::from((x - y).abs());
                let name = &result.name;
                assert!(
                    difference <= bound,
                    "seed {seed}, {what}: {name} is {x} instead of {y} (bound {bound:.1e})\n{text}"
                );
            }
        }
    }
    let plan = model.session(options()).unwrap().plan(&specs(&inputs)).unwrap();
    plan.passes().iter().filter(|pass| !pass.done.is_empty()).map(|pass| pass.name).collect()
}

/// At the precision of bf16 a value that all readers round is handed on rounded: that changes no
/// bit, but where it is added to sums, which read it as it is. (Winograd's algorithms round nothing
/// else: they are left out.) Returns what was done.
fn agree_on_bits(seed: u64) -> usize {
    let (graph, _, input) = graph(seed, 10);
    let text = graph.to_param_string().unwrap();
    let model = Model::from_graph(graph).unwrap();
    let options = SessionOptions::default().with_threads(1).without_winograd();
    let options = options.with_precision(Precision::Medium).with_units(Units::EmulatedBf16);
    let inputs = [input];
    let plan = model.session(options.clone()).unwrap().plan(&specs(&inputs)).unwrap();
    let pass = plan.passes().iter().find(|pass| pass.name == "bf16").unwrap();
    let is_sum = |step: &StepInfo| {
        step.kernel.starts_with("conv") && step.inputs[1..].iter().any(|x| x.spec.contains("bf16"))
    };
    let sums = plan.steps().any(|step| is_sum(&step));
    if !pass.done.is_empty() && !sums {
        let found = run(&model, &inputs, options.clone());
        let expected = run(&model, &inputs, options.without_pass("bf16"));
        for (found, expected) in found.iter().zip(&expected) {
            assert!(found.as_bytes() == expected.as_bytes(), "seed {seed}\n{text}");
        }
    }
    pass.done.len()
}

#[test]
fn bf16_between_convolutions_changes_no_bit_but_of_sums() {
    let done: Vec<usize> = (0..1000).map(agree_on_bits).collect();
    let (graphs, values) = (done.iter().filter(|&&n| n > 0).count(), done.iter().sum::<usize>());
    assert!(graphs > 80 && values > 100, "{values} values of {graphs} graphs");
}

/// The passes that can be left out.
fn passes() -> Vec<&'static str> {
    plutino::runtime::passes().filter(|p| !p.required).map(|p| p.name).collect()
}

#[test]
fn passes_leave_results_as_they_are() {
    let passes = passes();
    let mut used: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in 0..500 {
        let at = seed as usize * 2;
        let two = [passes[at % passes.len()], passes[(at + 1) % passes.len()]];
        agree(seed, &two).into_iter().for_each(|pass| *used.entry(pass).or_insert(0) += 1);
    }
    // Graphs are such that passes have something to do; `rows` wants more than a cache holds, and
    // `bf16` another precision.
    for pass in passes.iter().filter(|pass| !["rows", "bf16"].contains(*pass)) {
        assert!(used.get(pass).is_some_and(|&graphs| graphs >= 5), "{pass}: {used:?}");
    }
}

#[test]
#[ignore = "some minutes"]
fn passes_leave_results_as_they_are_10_000_times() {
    let passes = passes();
    for seed in 0..10_000 {
        agree(seed, &passes);
    }
}
