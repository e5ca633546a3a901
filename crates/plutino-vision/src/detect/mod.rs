//! From a detector's output to boxes in the picture.

mod layout;
mod suppress;

use crate::{Placement, Size};
pub use layout::{Boxes, Layout};
pub use suppress::Suppressor;

/// A box with its class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Detection {
    /// x1, y1, x2, y2, in pixels.
    pub corners: [f32; 4],
    /// From 0 to 1.
    pub score: f32,
    /// Its number.
    pub class: usize,
}

impl Detection {
    /// In the pixels of the picture, which it does not leave.
    #[must_use]
    pub fn in_picture(self, placement: &Placement, size: Size) -> Self {
        let [x1, y1, x2, y2] = self.corners.map(f64::from);
        let back = |at: f64, axis: usize, most: u32| {
            let at = (at - placement.offset[axis]) / placement.scale[axis];
            at.clamp(0.0, f64::from(most)) as f32
        };
        let (w, h) = (size.width, size.height);
        Self { corners: [back(x1, 0, w), back(y1, 1, h), back(x2, 0, w), back(y2, 1, h)], ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_go_back_into_the_picture() {
        let placement = Placement { scale: [0.5; 2], offset: [0.0, 10.0] };
        let seen = Detection { corners: [-3.0, 15.0, 50.0, 99.0], score: 0.5, class: 0 };
        let size = Size { height: 120, width: 160 };
        assert_eq!(seen.in_picture(&placement, size).corners, [0.0, 10.0, 100.0, 120.0]);
    }
}
