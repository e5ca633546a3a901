use plutino::Model;
use plutino::ir::{Dim, TensorType};

use crate::Size;

/// What a model takes: its channels, and its size where the file records one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// 1 or 3 for pictures; 3 where the file records none.
    pub channels: usize,
    /// Height and width.
    pub size: Option<Size>,
}

impl Wanted {
    /// By the recorded shape of an input, (batch, channels, height, width).
    #[must_use]
    pub fn of(recorded: &TensorType) -> Self {
        let known = |dim: &Dim| if let Dim::Known(n) = dim { Some(*n) } else { None };
        let side = |dim: &Dim| known(dim).and_then(|n| u32::try_from(n).ok());
        match recorded.shape.as_deref() {
            Some([_, channels, height, width]) => Self {
                channels: known(channels).unwrap_or(3),
                size: side(height).zip(side(width)).map(|(height, width)| Size { height, width }),
            },
            _ => Self { channels: 3, size: None },
        }
    }

    /// By the only input of a model; none where there are several, or one of other than four
    /// dimensions.
    #[must_use]
    pub fn by(model: &Model) -> Option<Self> {
        match model.inputs() {
            [only] if only.recorded.rank().is_none_or(|rank| rank == 4) => {
                Some(Self::of(&only.recorded))
            }
            _ => None,
        }
    }
}
