//! What is to be computed: the sizes of a convolution, checked once.
//!
//! <https://pytorch.org/docs/stable/generated/torch.nn.Conv2d.html>: in every spatial dimension,
//! with `span = dilation * (kernel - 1) + 1`,
//!
//! ```text
//! output = (input + padding before + padding after - span) / stride + 1
//! ```
//! and output `o` sees inputs `o * stride - padding before + dilation * tap`.
//!
//! A transposed convolution is the gradient of a convolution with respect to its image
//! (<https://pytorch.org/docs/stable/generated/torch.nn.ConvTranspose2d.html>): what it reads lies
//! where that one writes, [`ConvProblem::adjoint`].

use plutino_cpu::PackKey;
use plutino_products::gemm::GemmError;

/// Spatial dimensions of the largest convolution.
pub const MAX_DIMS: usize = 3;

/// Sizes that make no convolution.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConvError {
    /// Kernel size, stride or dilation is zero.
    #[error("kernel size {kernel}, stride {stride} and dilation {dilation} must be positive")]
    Zero {
        /// Kernel size.
        kernel: usize,
        /// Stride.
        stride: usize,
        /// Dilation.
        dilation: usize,
    },
    /// The window does not fit into the padded input.
    #[error("a window that spans {span} does not fit into an input of {padded}, padding included")]
    TooSmall {
        /// Input size with padding.
        padded: usize,
        /// `dilation * (kernel - 1) + 1`.
        span: usize,
    },
    /// Channels that groups do not divide.
    #[error("{channels} channels cannot be cut into {groups} groups")]
    Groups {
        /// Input or output channels.
        channels: usize,
        /// Groups.
        groups: usize,
    },
    /// More output padding than a transposed convolution can have.
    #[error(
        "output padding {output_padding} must be less than stride {stride} or dilation {dilation}"
    )]
    OutputPadding {
        /// Output padding.
        output_padding: usize,
        /// Stride.
        stride: usize,
        /// Dilation.
        dilation: usize,
    },
    /// Padding that cannot be filled from an input this small.
    #[error("{mode:?} padding {padding} needs a larger input than {input}")]
    Padding {
        /// What the padding holds.
        mode: PadMode,
        /// Padding on the larger side.
        padding: usize,
        /// Input size.
        input: usize,
    },
    /// Padding that takes away all there is.
    #[error("padding {padding} leaves nothing of an output of {full}")]
    NothingLeft {
        /// Padding of both sides together.
        padding: usize,
        /// Output size without padding.
        full: usize,
    },
    /// Not 1 to 3 spatial dimensions.
    #[error("{0} spatial dimensions: there must be 1, 2 or 3")]
    Dims(usize),
    /// A size exceeds what can be addressed.
    #[error("the sizes of the convolution overflow")]
    Overflow,
    /// Some dimensions of a transposed convolution, and some of another one.
    #[error("some dimensions are transposed and some are not")]
    Mixed,
    /// No algorithm computes this problem with these post-ops in these layouts.
    #[error("no algorithm computes this convolution: {0}")]
    NoAlgorithm(String),
    /// Weights that were packed for another algorithm, tile or instruction set.
    #[error("weights are packed as {found}, not as {expected}")]
    Packed {
        /// What the convolution reads.
        expected: PackKey,
        /// What it was given.
        found: PackKey,
    },
    /// Weights of other channels or another window.
    #[error("weights of groups, channels and taps {found:?} where these are {expected:?}")]
    Weights {
        /// Groups, input and output channels, taps by dimension of the convolution.
        expected: [usize; 6],
        /// Those of the weights.
        found: [usize; 6],
    },
    /// Workspace that does not start at a multiple of 64 bytes.
    #[error("a workspace must start at a multiple of 64 bytes")]
    Misaligned,
    /// More threads than the convolution was planned for.
    #[error("{found} threads run a convolution that was planned for {planned}")]
    Threads {
        /// Threads of the plan.
        planned: usize,
        /// Threads of the run.
        found: usize,
    },
    /// Weights, input or output of another size than the problem's.
    #[error("{what} has {found} elements instead of {expected}")]
    Length {
        /// Which one.
        what: &'static str,
        /// Elements found.
        found: usize,
        /// Elements expected.
        expected: usize,
    },
    /// A matrix product that a convolution consists of.
    #[error(transparent)]
    Product(GemmError),
    /// The system refused memory for the packed weights, or a source cannot be read.
    #[error(transparent)]
    Memory(#[from] plutino_tensor::TensorError),
}

impl From<GemmError> for ConvError {
    /// Memory that is refused is the same wherever it is asked for.
    fn from(error: GemmError) -> Self {
        match error {
            GemmError::Memory(error) => error.into(),
            error => Self::Product(error),
        }
    }
}

/// What the padding around an image holds.
///
/// <https://pytorch.org/docs/stable/generated/torch.nn.functional.pad.html>
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PadMode {
    /// Zeros.
    #[default]
    Zeros,
    /// The image mirrored at its outermost elements, which are not repeated.
    Reflect,
    /// The outermost elements.
    Replicate,
    /// The other end of the image.
    Circular,
}

/// The window of one spatial dimension, as a model gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Window {
    /// Taps.
    pub kernel: usize,
    /// Distance of neighbouring windows.
    pub stride: usize,
    /// Distance of neighbouring taps.
    pub dilation: usize,
    /// Elements added before and after the input.
    pub padding: (usize, usize),
    /// What they hold.
    pub mode: PadMode,
}

impl Default for Window {
    /// One tap at every place.
    fn default() -> Self {
        Self { kernel: 1, stride: 1, dilation: 1, padding: (0, 0), mode: PadMode::Zeros }
    }
}

impl Window {
    fn span(self) -> Result<usize, ConvError> {
        let Self { kernel, stride, dilation, .. } = self;
        if kernel == 0 || stride == 0 || dilation == 0 {
            return Err(ConvError::Zero { kernel, stride, dilation });
        }
        (kernel - 1).checked_mul(dilation).and_then(|x| x.checked_add(1)).ok_or(ConvError::Overflow)
    }
}

/// One spatial dimension, with consistent sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Axis {
    window: Window,
    input: usize,
    output: usize,
    transposed: bool,
}

impl Axis {
    /// A convolution's dimension.
    ///
    /// # Errors
    /// [`ConvError::Zero`], [`ConvError::TooSmall`], [`ConvError::Padding`],
    /// [`ConvError::Overflow`].
    pub fn new(input: usize, window: Window) -> Result<Self, ConvError> {
        let span = window.span()?;
        let padded = input
            .checked_add(window.padding.0)
            .and_then(|x| x.checked_add(window.padding.1))
            .ok_or(ConvError::Overflow)?;
        let (padding, mode) = (window.padding.0.max(window.padding.1), window.mode);
        let enough = match mode {
            PadMode::Zeros => true,
            PadMode::Reflect => padding < input || padding == 0,
            PadMode::Replicate => input > 0 || padding == 0,
            PadMode::Circular => padding <= input,
        };
        if !enough {
            return Err(ConvError::Padding { mode, padding, input });
        }
        let free = padded.checked_sub(span).ok_or(ConvError::TooSmall { padded, span })?;
        Ok(Self { window, input, output: free / window.stride + 1, transposed: false })
    }

    /// A transposed convolution's dimension.
    ///
    /// # Errors
    /// As [`Axis::new`], and [`ConvError::OutputPadding`], [`ConvError::NothingLeft`].
    pub fn transposed(
        input: usize,
        window: Window,
        output_padding: usize,
    ) -> Result<Self, ConvError> {
        let Window { stride, dilation, padding, .. } = window;
        let span = window.span()?;
        if output_padding > 0 && output_padding >= stride.max(dilation) {
            return Err(ConvError::OutputPadding { output_padding, stride, dilation });
        }
        let full = input
            .checked_sub(1)
            .ok_or(ConvError::TooSmall { padded: 0, span: 1 })?
            .checked_mul(stride)
            .and_then(|x| x.checked_add(span))
            .and_then(|x| x.checked_add(output_padding))
            .ok_or(ConvError::Overflow)?;
        let both = padding.0.checked_add(padding.1).ok_or(ConvError::Overflow)?;
        let output = full.checked_sub(both).filter(|&n| n > 0);
        let output = output.ok_or(ConvError::NothingLeft { padding: both, full })?;
        Ok(Self { window, input, output, transposed: true })
    }

    /// The window.
    pub fn window(&self) -> Window {
        self.window
    }

    /// Elements that are read.
    pub fn input(&self) -> usize {
        self.input
    }

    /// Elements that are written.
    pub fn output(&self) -> usize {
        self.output
    }

    /// The dimension of the convolution whose gradient this is, and the other way round.
    fn adjoint(self) -> Self {
        let Self { window, input, output, transposed } = self;
        Self { window, input: output, output: input, transposed: !transposed }
    }

    /// The element that stands at a position of the padded image; none for zero. For dimensions
    /// that are not transposed, as is [`Axis::tap`].
    pub(crate) fn source(&self, padded: usize) -> Option<usize> {
        let (n, before) = (self.input, self.window.padding.0);
        let inside = padded.checked_sub(before).filter(|&x| x < n);
        match self.window.mode {
            PadMode::Zeros => inside,
            _ if inside.is_some() => inside,
            // The padding is short enough for one reflection or turn (see `new`); the last elements
            // of the padded image may still lie behind the padding where the stride does not reach
            // them.
            PadMode::Reflect if padded < before => Some(before - padded),
            PadMode::Reflect => (2 * n + before).checked_sub(2 + padded),
            PadMode::Replicate if padded < before => Some(0),
            PadMode::Replicate => n.checked_sub(1),
            PadMode::Circular if padded < before => Some(padded + n - before),
            PadMode::Circular => (padded - before).checked_sub(n),
        }
        .filter(|&x| x < n)
    }

    /// The element under a tap of the window at a place; none for zero.
    pub(crate) fn tap(&self, place: usize, tap: usize) -> Option<usize> {
        self.source(place * self.window.stride + tap * self.window.dilation)
    }

    /// Whether there is one tap at every place and no padding.
    pub(crate) fn is_pointwise(&self) -> bool {
        let Window { kernel, stride, padding, .. } = self.window;
        (kernel, stride, padding) == (1, 1, (0, 0))
    }
}

/// All sizes of a convolution, transposed or not. Images are batch x channels x depth x height x
/// width; missing leading dimensions are 1. Weights are `(out channels, in channels / groups,
/// taps)`, those of a transposed convolution `(in channels, out channels / groups, taps)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConvProblem {
    batch: usize,
    groups: usize,
    in_channels: usize,
    out_channels: usize,
    axes: [Axis; MAX_DIMS],
    dims: usize,
    transposed: bool,
}

impl ConvProblem {
    /// Checks that the sizes go together and that no product of them overflows.
    ///
    /// # Errors
    /// [`ConvError::Dims`], [`ConvError::Mixed`], [`ConvError::Groups`], [`ConvError::Overflow`].
    pub fn new(
        batch: usize,
        groups: usize,
        in_channels: usize,
        out_channels: usize,
        axes: &[Axis],
    ) -> Result<Self, ConvError> {
        let Some(transposed) =
            axes.first().map(|a| a.transposed).filter(|_| axes.len() <= MAX_DIMS)
        else {
            return Err(ConvError::Dims(axes.len()));
        };
        if axes.iter().any(|a| a.transposed != transposed) {
            return Err(ConvError::Mixed);
        }
        for channels in [in_channels, out_channels] {
            if groups == 0 || channels == 0 || !channels.is_multiple_of(groups) {
                return Err(ConvError::Groups { channels, groups });
            }
        }
        let trivial = Axis { window: Window::default(), input: 1, output: 1, transposed };
        let mut all = [trivial; MAX_DIMS];
        all[MAX_DIMS - axes.len()..].copy_from_slice(axes);
        // The largest numbers that any kernel computes: weights, images, results, padded images cut
        // into phases (windows.rs), and the windows of all places side by side.
        let taps = product(all.iter().map(|a| a.window.kernel))?;
        let places = product(all.iter().map(|a| a.output))?;
        let image = product(all.iter().map(|a| a.input))?;
        let padded =
            product(all.iter().map(|a| if transposed { a.adjoint() } else { *a }).map(|a| {
                let Window { kernel, stride, dilation, .. } = a.window;
                let reach = (kernel - 1).saturating_mul(dilation) / stride + 1;
                a.output.saturating_add(reach).saturating_mul(kernel.min(stride))
            }))?;
        let (channels, batch_) = (in_channels.max(out_channels), batch.max(1));
        product([places, channels, batch_])?;
        product([image, channels, batch_])?;
        product([padded, channels, batch_])?;
        product([taps, in_channels, out_channels])?;
        // The columns of a matrix product: windows of what is read, or of what is written.
        let (columns, places) = match transposed {
            true => (out_channels, image),
            false => (in_channels, places),
        };
        product([taps, columns, places])?;
        Ok(Self {
            batch,
            groups,
            in_channels,
            out_channels,
            axes: all,
            dims: axes.len(),
            transposed,
        })
    }

    /// Spatial dimensions.
    pub fn dims(&self) -> usize {
        self.dims
    }

    /// Whether this is a transposed convolution.
    pub fn is_transposed(&self) -> bool {
        self.transposed
    }

    /// The convolution whose gradient with respect to its image this is, and the other way round:
    /// what one reads, the other writes.
    #[must_use]
    pub fn adjoint(&self) -> Self {
        Self {
            in_channels: self.out_channels,
            out_channels: self.in_channels,
            axes: self.axes.map(Axis::adjoint),
            transposed: !self.transposed,
            ..*self
        }
    }

    /// The same for at most as many images.
    pub(crate) fn of_images(&self, images: usize) -> Self {
        Self { batch: self.batch.min(images), ..*self }
    }

    /// Images.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Groups of channels.
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// Channels that are read, of all groups.
    pub fn in_channels(&self) -> usize {
        self.in_channels
    }

    /// Channels that are written, of all groups.
    pub fn out_channels(&self) -> usize {
        self.out_channels
    }

    /// Depth, height, width.
    pub fn axes(&self) -> &[Axis; MAX_DIMS] {
        &self.axes
    }

    /// Input channels of one group.
    pub fn group_in(&self) -> usize {
        self.in_channels / self.groups
    }

    /// Output channels of one group.
    pub fn group_out(&self) -> usize {
        self.out_channels / self.groups
    }

    /// Taps of the window.
    pub fn taps(&self) -> usize {
        self.axes.iter().map(|a| a.window.kernel).product()
    }

    /// Elements of one channel of the input.
    pub fn in_plane(&self) -> usize {
        self.axes.iter().map(|a| a.input).product()
    }

    /// Elements of one channel of the output.
    pub fn out_plane(&self) -> usize {
        self.axes.iter().map(|a| a.output).product()
    }

    /// Elements of the input, row-major.
    pub fn input_len(&self) -> usize {
        self.batch * self.in_channels * self.in_plane()
    }

    /// Elements of the output, row-major.
    pub fn output_len(&self) -> usize {
        self.batch * self.out_channels * self.out_plane()
    }

    /// Elements of the weights.
    pub fn weight_len(&self) -> usize {
        self.out_channels * self.group_in() * self.taps()
    }

    /// What weights must share to be one layer's: groups, channels, and taps by dimension.
    pub(crate) fn weight_sizes(&self) -> [usize; 6] {
        let [d, h, w] = self.axes.map(|a| a.window.kernel);
        [self.groups, self.in_channels, self.out_channels, d, h, w]
    }

    /// Multiplications and additions, counted separately.
    pub fn flops(&self) -> usize {
        let each = match self.transposed {
            true => self.input_len().saturating_mul(self.group_out()),
            false => self.output_len().saturating_mul(self.group_in()),
        };
        each.saturating_mul(2).saturating_mul(self.taps())
    }
}

/// The product of sizes, as far below the limit that bytes of f32 can be counted, too.
fn product(sizes: impl IntoIterator<Item = usize>) -> Result<usize, ConvError> {
    let fits = |n: &usize| *n <= isize::MAX as usize / 8;
    sizes
        .into_iter()
        .try_fold(1usize, |all, size| all.checked_mul(size).filter(fits))
        .ok_or(ConvError::Overflow)
}

/// Checks a number of elements.
pub(crate) fn check_len(
    what: &'static str,
    found: usize,
    expected: usize,
) -> Result<(), ConvError> {
    if found == expected { Ok(()) } else { Err(ConvError::Length { what, found, expected }) }
}
