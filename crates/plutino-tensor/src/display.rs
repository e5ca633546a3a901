//! Printing, in PyTorch's form: four digits, columns aligned, the middle of large tensors left out.
//!
//! See <https://pytorch.org/docs/stable/generated/torch.set_printoptions.html>.

use crate::{DType, Element, Tensor, TensorError, TensorView, for_dtype};
use std::fmt::{Display, Formatter, Result as FmtResult};

/// Tensors of more elements are summarised.
const THRESHOLD: usize = 1000;
/// Elements shown at either end of a summarised dimension.
const EDGE: usize = 3;
/// Columns of a line.
const LINE: usize = 80;
/// What opens a tensor; its length is the indent of the following lines.
const PREFIX: &str = "tensor(";

impl Display for Tensor {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        self.view().fmt(f)
    }
}

impl Display for TensorView<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        f.write_str(PREFIX)?;
        let body = match self.numel() {
            0 => "[]".to_owned(),
            _ => for_dtype!(self.dtype(), T => body::<T>(self)).map_err(|_| std::fmt::Error)?,
        };
        f.write_str(&body)?;
        let mut column = body.len() - body.rfind('\n').map_or(0, |at| at + 1);
        let mut suffix = |text: String| {
            let fits = column + text.len() + 2 <= LINE;
            column += text.len() + 2;
            if fits { write!(f, ", {text}") } else { write!(f, ",\n{:1$}{text}", "", PREFIX.len()) }
        };
        if self.numel() == 0 && self.shape().rank() != 1 {
            suffix(format!("size={}", self.shape()))?;
        }
        // PyTorch leaves out what a literal of the values would give anyway.
        if !matches!(self.dtype(), DType::F32 | DType::I64 | DType::Bool | DType::C64) {
            suffix(format!("dtype={}", self.dtype()))?;
        }
        f.write_str(")")
    }
}

/// The nested brackets.
fn body<T: Element>(view: &TensorView<'_>) -> Result<String, TensorError> {
    let summarise = view.numel() > THRESHOLD;
    let shown = if summarise { ends(view)? } else { view.to_tensor()? };
    let columns = Columns::of::<T>(&shown.view())?;
    let mut out = String::new();
    nested::<T>(view, summarise, &columns, PREFIX.len(), &mut out)?;
    Ok(out)
}

/// The elements that a summary shows: the first and last few of every dimension.
fn ends(view: &TensorView<'_>) -> Result<Tensor, TensorError> {
    let mut shown: Option<Tensor> = None;
    for dim in 0..view.shape().rank() {
        let all = shown.as_ref().map_or_else(|| view.clone(), Tensor::view);
        let size = all.shape()[dim];
        if size > 2 * EDGE {
            let ends = [all.narrow(dim, 0, EDGE)?, all.narrow(dim, size - EDGE, EDGE)?];
            shown = Some(crate::concat(&ends, dim)?);
        }
    }
    shown.map_or_else(|| view.to_tensor(), Ok)
}

/// The indices of one dimension that are shown, with `None` for those left out.
fn indices(size: usize, summarise: bool) -> Vec<Option<usize>> {
    if summarise && size > 2 * EDGE {
        let head = (0..EDGE).map(Some);
        head.chain([None]).chain((size - EDGE..size).map(Some)).collect()
    } else {
        (0..size).map(Some).collect()
    }
}

fn nested<T: Element>(
    view: &TensorView<'_>,
    summarise: bool,
    columns: &Columns,
    indent: usize,
    out: &mut String,
) -> Result<(), TensorError> {
    let Some(&size) = view.shape().first() else {
        out.push_str(&columns.print(view.get::<T>(&[])?));
        return Ok(());
    };
    let rank = view.shape().rank();
    let shown = indices(size, summarise);
    let per_line =
        if rank > 1 { 1 } else { ((LINE - indent.min(LINE)) / (columns.width() + 2)).max(1) };
    out.push('[');
    for (i, index) in shown.into_iter().enumerate() {
        if i > 0 && i % per_line == 0 {
            // One line break after a row, one more for each further dimension that ends there.
            out.push(',');
            out.extend(std::iter::repeat_n('\n', (rank - 1).max(1)));
            out.extend(std::iter::repeat_n(' ', indent + 1));
        } else if i > 0 {
            out.push_str(", ");
        }
        match index {
            None => out.push_str(if rank > 1 { "..." } else { " ..." }),
            Some(index) => {
                nested::<T>(&view.select(0, index)?, summarise, columns, indent + 1, out)?
            }
        }
    }
    out.push(']');
    Ok(())
}

/// How the elements of one tensor are printed, so that they line up.
struct Columns {
    real: Column,
    /// Of complex tensors.
    imag: Option<Column>,
}

impl Columns {
    fn of<T: Element>(shown: &TensorView<'_>) -> Result<Self, TensorError> {
        let floats = |part: fn(T) -> f64| -> Result<Column, TensorError> {
            Ok(Column::of_floats(&shown.iter::<T>()?.map(part).collect::<Vec<_>>()))
        };
        if T::DTYPE.is_complex() {
            return Ok(Self { real: floats(T::to_f64)?, imag: Some(floats(T::imag)?) });
        }
        let real = if T::DTYPE.is_float() {
            floats(T::to_f64)?
        } else {
            let style = if T::DTYPE == DType::Bool { Style::Bool } else { Style::Integer };
            let widths = shown.iter::<T>()?.map(|x| style.print(x.to_f64(), x.to_i64()).len());
            Column { style, width: widths.max().unwrap_or(0) }
        };
        Ok(Self { real, imag: None })
    }

    fn width(&self) -> usize {
        self.real.width + self.imag.as_ref().map_or(0, |imag| imag.width + 1)
    }

    fn print<T: Element>(&self, x: T) -> String {
        let real = self.real.print(x.to_f64(), x.to_i64());
        let Some(imag) = &self.imag else { return real };
        let imag = imag.print(x.imag(), 0);
        let imag = imag.trim_start();
        let sign = if imag.starts_with('-') { "" } else { "+" };
        format!("{real}{sign}{imag}j")
    }
}

struct Column {
    style: Style,
    width: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Style {
    Bool,
    Integer,
    /// Whole numbers of a float type: `3.`
    Whole,
    /// `3.1416`
    Fixed,
    /// `3.1416e+00`
    Scientific,
}

impl Column {
    fn of_floats(values: &[f64]) -> Self {
        let counted: Vec<f64> =
            values.iter().copied().filter(|x| x.is_finite() && *x != 0.0).collect();
        let largest = counted.iter().fold(0.0, |a: f64, x| a.max(x.abs()));
        let smallest = counted.iter().fold(f64::INFINITY, |a, x| a.min(x.abs()));
        let whole = counted.iter().all(|x| x.fract() == 0.0);
        let style = if largest / smallest > 1000.0 || largest > 1e8 || (!whole && smallest < 1e-4) {
            Style::Scientific
        } else if whole {
            Style::Whole
        } else {
            Style::Fixed
        };
        let width = counted.iter().map(|&x| style.print(x, 0).len()).max().unwrap_or(1);
        Self { style, width }
    }

    fn print(&self, float: f64, integer: i64) -> String {
        format!("{:>1$}", self.style.print(float, integer), self.width)
    }
}

impl Style {
    fn print(self, float: f64, integer: i64) -> String {
        match self {
            Self::Integer => integer.to_string(),
            Self::Bool => if float == 0.0 { "False" } else { "True" }.to_owned(),
            _ if float.is_nan() => "nan".to_owned(),
            _ if float.is_infinite() => float.to_string(),
            Self::Whole => format!("{float:.0}."),
            Self::Fixed => format!("{float:.4}"),
            Self::Scientific => {
                // Rust prints 1.0000e4 where Python prints 1.0000e+04.
                let text = format!("{float:.4e}");
                let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
                let (sign, digits) = match exponent.strip_prefix('-') {
                    Some(digits) => ('-', digits),
                    None => ('+', exponent),
                };
                format!("{mantissa}e{sign}{digits:0>2}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Complex, Shape, bf16};

    fn show<T: Element>(values: &[T], shape: &[usize]) -> String {
        Tensor::from_slice(values, Shape::from(shape)).unwrap().to_string()
    }

    // Every expected text is PyTorch's own, dtype names aside.

    #[test]
    fn scalars_and_rows() {
        assert_eq!(show(&[3.5f32], &[]), "tensor(3.5000)");
        assert_eq!(show(&[7i64], &[]), "tensor(7)");
        assert_eq!(show(&[true], &[]), "tensor(True)");
        assert_eq!(show(&[1.0f32, 2.5, -3.0], &[3]), "tensor([ 1.0000,  2.5000, -3.0000])");
        assert_eq!(show(&[0.0f32, 0.0], &[2]), "tensor([0., 0.])");
        assert_eq!(show(&[f32::NAN, 1.0, f32::INFINITY], &[3]), "tensor([nan, 1., inf])");
        assert_eq!(show(&[1i64, 2, -300], &[3]), "tensor([   1,    2, -300])");
        assert_eq!(show(&[true, false], &[2]), "tensor([ True, False])");
        assert_eq!(show(&[bf16::from_f32(1.5)], &[1]), "tensor([1.5000], dtype=bf16)");
        let c = [Complex::new(1.0f32, 2.0), Complex::new(3.5, -4.0)];
        assert_eq!(show(&c, &[2]), "tensor([1.0000+2.j, 3.5000-4.j])");
    }

    #[test]
    fn scientific() {
        let small = show(&[1.0f32, 2.0, 1e-5], &[3]);
        assert_eq!(small, "tensor([1.0000e+00, 2.0000e+00, 1.0000e-05])");
        assert_eq!(show(&[1e10f32, 1.0], &[2]), "tensor([1.0000e+10, 1.0000e+00])");
    }

    #[test]
    fn nesting() {
        let expected = "tensor([[1., 2.],\n        [3., 4.]], dtype=f64)";
        assert_eq!(show(&[1.0f64, 2.0, 3.0, 4.0], &[2, 2]), expected);
        let x = Tensor::arange(DType::I64, 0.0, 8.0, 1.0).unwrap().reshape([2, 2, 2]).unwrap();
        let expected =
            "tensor([[[0, 1],\n         [2, 3]],\n\n        [[4, 5],\n         [6, 7]]])";
        assert_eq!(x.to_string(), expected);
        let expected = "tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,\n        \
                        18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29], dtype=i8)";
        assert_eq!(Tensor::arange(DType::I8, 0.0, 30.0, 1.0).unwrap().to_string(), expected);
    }

    #[test]
    fn nothing() {
        assert_eq!(show::<f32>(&[], &[0]), "tensor([])");
        assert_eq!(show::<f32>(&[], &[0, 3]), "tensor([], size=(0,3))");
        assert_eq!(show::<i32>(&[], &[2, 0, 3]), "tensor([], size=(2,0,3), dtype=i32)");
    }

    #[test]
    fn large_tensors_are_summarised() {
        let x = Tensor::arange(DType::F32, 0.0, 2000.0, 1.0).unwrap();
        let expected = "tensor([0.0000e+00, 1.0000e+00, 2.0000e+00,  ..., 1.9970e+03, 1.9980e+03,\n        \
                        1.9990e+03])";
        assert_eq!(x.to_string(), expected);
        let x = Tensor::arange(DType::I64, 0.0, 1200.0, 1.0).unwrap().reshape([300, 4]).unwrap();
        let expected = "tensor([[   0,    1,    2,    3],\n        [   4,    5,    6,    7],\n        \
                        [   8,    9,   10,   11],\n        ...,\n        [1188, 1189, 1190, 1191],\n        \
                        [1192, 1193, 1194, 1195],\n        [1196, 1197, 1198, 1199]])";
        assert_eq!(x.to_string(), expected);
        // A huge broadcast prints at once.
        let one = Tensor::scalar(1.0f32).unwrap();
        assert!(
            one.view().broadcast_to([1 << 40]).unwrap().to_string().starts_with("tensor([1., ")
        );
    }
}
