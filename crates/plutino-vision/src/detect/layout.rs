//! Outputs of detectors: which number means what.

use plutino::tensor::alloc;
use plutino::{DType, Tensor};

use super::Detection;
use crate::{VisionError, Wants};

/// What the numbers of an output mean; boxes are in pixels of the model's input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[non_exhaustive]
pub enum Layout {
    /// (1, boxes, 5 + classes): centre, size, whether there is anything, probabilities (YOLOv5, v7)
    Yolov5,
    /// (1, 4 + classes, boxes): centre, size, probabilities (YOLOv8, 9, 11)
    Yolov8,
    /// (1, boxes, 6): corners, score, class; nothing left to suppress (YOLOv10)
    EndToEnd,
}

/// Rows of an output that is [`Layout::EndToEnd`], at most: larger ones have boxes that overlap.
const MOST_FINAL: usize = 300;

/// Classes that an output may name by a number.
const MOST_CLASSES: f32 = 1e6;

impl Layout {
    /// By the shape alone: the longer side counts boxes.
    fn of(rows: usize, columns: usize) -> Option<Self> {
        match (rows, columns) {
            (..=MOST_FINAL, 6) => Some(Self::EndToEnd),
            (5.., _) if rows < columns => Some(Self::Yolov8),
            (_, 6..) if columns < rows => Some(Self::Yolov5),
            _ => None,
        }
    }

    /// How many classes there are; none where the output does not tell.
    fn classes(self, rows: usize, columns: usize) -> Option<usize> {
        match self {
            Self::Yolov5 => columns.checked_sub(5),
            Self::Yolov8 => rows.checked_sub(4),
            Self::EndToEnd => Some(0).filter(|_| columns == 6),
        }
        .filter(|&classes| classes > 0 || self == Self::EndToEnd)
    }
}

/// What an output holds. Boxes are in pixels of the model's input.
#[derive(Debug, PartialEq)]
pub struct Boxes {
    /// What its numbers mean.
    pub layout: Layout,
    /// How many classes the model has, where the output tells.
    pub classes: Option<usize>,
    /// Those with a score above the least, in their order.
    pub found: Vec<Detection>,
}

impl Boxes {
    /// Boxes with scores above `least`: of the first output that has the shape of
    /// some, or where `layout` is said, of that.
    ///
    /// # Errors
    /// [`VisionError::Output`], and too little memory.
    pub fn read(
        outputs: &[Tensor],
        layout: Option<Layout>,
        least: f32,
    ) -> Result<Self, VisionError> {
        let fits = |output: &Tensor| match output.shape().dims() {
            &[1, rows, columns] if output.dtype().is_float() => {
                let layout = layout.or_else(|| Layout::of(rows, columns))?;
                Some((layout, layout.classes(rows, columns)?, columns))
            }
            _ => None,
        };
        let found = outputs.iter().find_map(|output| Some((output, fits(output)?)));
        let Some((output, (layout, classes, columns))) = found else {
            let outputs = outputs.iter().map(Tensor::spec).collect();
            return Err(VisionError::Output { wanted: Wants::Boxes, outputs });
        };
        let numbers = output.cast(DType::F32)?;
        let numbers = numbers.as_slice::<f32>()?;
        let found = match layout {
            Layout::Yolov5 => {
                numbers.chunks_exact(columns).filter_map(|row| row_of_v5(row, least)).collect()
            }
            Layout::Yolov8 => columns_of_v8(numbers, columns, least)?,
            Layout::EndToEnd => {
                numbers.chunks_exact(6).filter_map(|row| final_row(row, least)).collect()
            }
        };
        Ok(Self { layout, classes: Some(classes).filter(|n| *n > 0), found })
    }
}

fn corners(x: f32, y: f32, w: f32, h: f32) -> [f32; 4] {
    [x - w / 2.0, y - h / 2.0, x + w / 2.0, y + h / 2.0]
}

fn row_of_v5(row: &[f32], least: f32) -> Option<Detection> {
    let (&[x, y, w, h, object], scores) = row.split_first_chunk()?;
    if object.is_nan() || object <= least {
        return None;
    }
    let mut best = Detection { corners: corners(x, y, w, h), score: least, class: usize::MAX };
    for (class, score) in scores.iter().map(|score| score * object).enumerate() {
        if score > best.score {
            best = Detection { score, class, ..best };
        }
    }
    Some(best).filter(|best| best.class != usize::MAX)
}

fn columns_of_v8(numbers: &[f32], boxes: usize, least: f32) -> Result<Vec<Detection>, VisionError> {
    let (sides, scores) = numbers.split_at((4 * boxes).min(numbers.len()));
    // Class by class, as the numbers lie in memory.
    let mut best = alloc::filled(boxes, (least, usize::MAX))?;
    for (class, row) in scores.chunks_exact(boxes.max(1)).enumerate() {
        for (best, &score) in best.iter_mut().zip(row) {
            if score > best.0 {
                *best = (score, class);
            }
        }
    }
    let side = |which: usize, at: usize| sides.get(which * boxes + at).copied().unwrap_or(f32::NAN);
    let found = best.into_iter().enumerate().filter(|(_, (_, class))| *class != usize::MAX);
    let found = found.map(|(at, (score, class))| {
        let corners = corners(side(0, at), side(1, at), side(2, at), side(3, at));
        Detection { corners, score, class }
    });
    Ok(found.collect())
}

fn final_row(row: &[f32], least: f32) -> Option<Detection> {
    let &[x1, y1, x2, y2, score, class] = row else { return None };
    let named = (0.0..MOST_CLASSES).contains(&class);
    (score > least && named).then_some(Detection {
        corners: [x1, y1, x2, y2],
        score,
        class: class as usize,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_tell() {
        assert_eq!(Layout::of(25200, 85), Some(Layout::Yolov5));
        assert_eq!(Layout::of(25200, 6), Some(Layout::Yolov5));
        assert_eq!(Layout::of(84, 8400), Some(Layout::Yolov8));
        assert_eq!(Layout::of(5, 8400), Some(Layout::Yolov8));
        assert_eq!(Layout::of(300, 6), Some(Layout::EndToEnd));
        for neither in [(4, 8400), (8400, 5), (7, 7), (0, 0)] {
            assert_eq!(Layout::of(neither.0, neither.1), None, "{neither:?}");
        }
    }

    /// One box at (10, 20) of size 4 x 6, class 1 of 2, score 0.5.
    const EXPECTED: Detection =
        Detection { corners: [8.0, 17.0, 12.0, 23.0], score: 0.5, class: 1 };

    fn found(numbers: &[f32], shape: &[usize], layout: Layout) -> Vec<Detection> {
        let output = Tensor::from_slice(numbers, shape).unwrap();
        Boxes::read(&[output], Some(layout), 0.25).unwrap().found
    }

    #[test]
    fn every_layout_says_the_same() {
        let v5 = [10., 20., 4., 6., 0.625, 0.1, 0.8, 1., 1., 1., 1., 0.2, 1., 1.];
        let v5 = found(&v5, &[1, 2, 7], Layout::Yolov5);
        let v8 = [10., 1., 20., 1., 4., 1., 6., 1., 0.1, 0.2, 0.5, f32::NAN];
        let v8 = found(&v8, &[1, 6, 2], Layout::Yolov8);
        let last = [8., 17., 12., 23., 0.5, 1., 0., 0., 1., 1., 0.9, -1., 0., 0., 1., 1., 0.1, 0.];
        let last = found(&last, &[1, 3, 6], Layout::EndToEnd);
        assert_eq!([v5, v8, last], [[EXPECTED]; 3]);
    }

    #[test]
    fn other_outputs_are_passed_over_or_refused() {
        let other = Tensor::zeros(DType::F32, [1, 3, 8, 8]).unwrap();
        assert!(Boxes::read(std::slice::from_ref(&other), None, 0.25).is_err());
        let boxes = Tensor::zeros(DType::F32, [1, 84, 400]).unwrap();
        let decoded = Boxes::read(&[other, boxes], None, 0.25).unwrap();
        assert_eq!((decoded.layout, decoded.classes), (Layout::Yolov8, Some(80)));
    }
}
