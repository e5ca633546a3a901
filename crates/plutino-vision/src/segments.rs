//! From a segmenter's output to a class for every pixel of the picture.

use plutino::tensor::alloc;
use plutino::{DType, Tensor};

use crate::{Placement, Size, VisionError, Wants};

/// Classes of the pixels of a picture, row by row; 255 where the model has not looked.
#[derive(Debug, PartialEq)]
pub struct Segments {
    /// Row by row.
    pub classes: Vec<u8>,
    /// How many classes the model has; of numbers of classes, how many occur.
    pub count: usize,
}

/// What the model has not looked at: VOC's number for what has no class.
const UNSEEN: u8 = 255;

/// Classes of the pixels of an output.
struct Grid {
    size: [usize; 2],
    classes: Vec<u8>,
    count: usize,
}

impl Segments {
    /// The classes of a picture's pixels: each that of the output's pixel in which it lies.
    ///
    /// `outputs` are the model's for this picture alone, of which the first is read: scores of
    /// classes, (1, classes, height, width), or numbers of classes. The picture has the size
    /// `picture`, went where `placement` says, and the model saw it in the size `seen`.
    ///
    /// # Errors
    /// [`VisionError::Output`], and too little memory.
    pub fn read(
        outputs: &[Tensor],
        seen: Size,
        placement: &Placement,
        picture: Size,
    ) -> Result<Self, VisionError> {
        let Some(first) = outputs.first() else {
            return Err(VisionError::Output { wanted: Wants::Segments, outputs: Vec::new() });
        };
        grid(first)?.under(seen, placement, picture)
    }
}

impl Grid {
    fn under(
        self,
        seen: Size,
        placement: &Placement,
        picture: Size,
    ) -> Result<Segments, VisionError> {
        let Size { height, width } = picture;
        let mut classes = alloc::filled(height as usize * width as usize, UNSEEN)?;
        // The pixel of the output along one axis, where there is one.
        let at = |i: u32, axis: usize, seen: u32, length: usize| {
            let seen_at = (f64::from(i) + 0.5) * placement.scale[axis] + placement.offset[axis];
            let at = (seen_at * length as f64 / f64::from(seen.max(1))).floor();
            (at >= 0.0 && at < length as f64).then_some(at as usize)
        };
        let [rows, columns] = self.size;
        let mut columns_at = alloc::filled(width as usize, None)?;
        for (x, column) in (0..).zip(&mut columns_at) {
            *column = at(x, 0, seen.width, columns);
        }
        for (y, row) in (0..height).zip(classes.chunks_exact_mut(width.max(1) as usize)) {
            let Some(from) = at(y, 1, seen.height, rows) else { continue };
            for (class, column) in row.iter_mut().zip(&columns_at) {
                let found = column.and_then(|column| self.classes.get(from * columns + column));
                *class = found.copied().unwrap_or(UNSEEN);
            }
        }
        Ok(Segments { classes, count: self.count })
    }
}

fn grid(output: &Tensor) -> Result<Grid, VisionError> {
    let wrong = || VisionError::Output { wanted: Wants::Segments, outputs: vec![output.spec()] };
    let (classes, size) = match *output.shape().dims() {
        [1, h, w] => (1, [h, w]),
        [1, classes @ 1..=255, h, w] => (classes, [h, w]),
        _ => return Err(wrong()),
    };
    let pixels = size[0] * size[1];
    let mut best = alloc::filled(pixels, 0u8)?;
    let integers = !output.dtype().is_float() && !output.dtype().is_complex();
    if integers && classes == 1 {
        let numbers = output.cast(DType::I64)?;
        for (best, &number) in best.iter_mut().zip(numbers.as_slice::<i64>()?) {
            *best = u8::try_from(number).map_err(|_| wrong())?;
        }
        let count = best.iter().max().map_or(0, |&most| usize::from(most) + 1);
        return Ok(Grid { size, classes: best, count });
    }
    if !output.dtype().is_float() {
        return Err(wrong());
    }
    let scores = output.cast(DType::F32)?;
    let scores = scores.as_slice::<f32>()?;
    if classes == 1 {
        // One score: whether a pixel belongs to the thing. Probabilities have their middle at 1/2.
        let probabilities = scores.iter().all(|score| (0.0..=1.0).contains(score));
        let least = if probabilities { 0.5 } else { 0.0 };
        best.iter_mut().zip(scores).for_each(|(best, &score)| *best = u8::from(score > least));
        return Ok(Grid { size, classes: best, count: 2 });
    }
    let mut largest = alloc::filled(pixels, f32::NEG_INFINITY)?;
    for (class, plane) in (0u8..).zip(scores.chunks_exact(pixels.max(1))) {
        for ((best, largest), &score) in best.iter_mut().zip(&mut largest).zip(plane) {
            if score > *largest {
                (*best, *largest) = (class, score);
            }
        }
    }
    Ok(Grid { size, classes: best, count: classes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pixel_has_the_class_of_where_it_went() {
        // An output of half the size; the picture's two rows lie in the middle of the model's four.
        let scores = Tensor::from_slice(&[0.0f32, 9.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0], [1, 2, 2, 2]);
        let placement = Placement { scale: [1.0; 2], offset: [0.0, 1.0] };
        let seen = Size { height: 4, width: 4 };
        let picture = Size { height: 2, width: 5 };
        let made = Segments::read(&[scores.unwrap()], seen, &placement, picture);
        let expected = vec![1, 1, 0, 0, 255, 1, 1, 1, 1, 255];
        assert_eq!(made.unwrap(), Segments { classes: expected, count: 2 });
    }

    #[test]
    fn numbers_of_classes_and_single_scores() {
        let of = |output: Tensor| grid(&output).map(|grid| (grid.classes, grid.count)).ok();
        let numbers = Tensor::from_slice(&[0i64, 7], [1, 1, 2]).unwrap();
        assert_eq!(of(numbers), Some((vec![0, 7], 8)));
        assert_eq!(of(Tensor::from_slice(&[0i64, -7], [1, 1, 2]).unwrap()), None);
        let scores = Tensor::from_slice(&[-0.1f32, 0.1], [1, 1, 1, 2]).unwrap();
        assert_eq!(of(scores), Some((vec![0, 1], 2)));
        let probabilities = Tensor::from_slice(&[0.4f32, 0.6], [1, 1, 1, 2]).unwrap();
        assert_eq!(of(probabilities), Some((vec![0, 1], 2)));
        assert_eq!(of(Tensor::zeros(DType::F32, [1, 256, 1, 1]).unwrap()), None);
    }
}
