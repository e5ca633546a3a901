//! The sizes of a convolution, checked once.
//!
//! <https://pytorch.org/docs/stable/generated/torch.nn.Conv2d.html>: in every spatial dimension,
//! with `span = dilation * (kernel - 1) + 1`,
//!
//! ```text
//! output = (input + padding before + padding after - span) / stride + 1
//! ```
//! and output `o` sees inputs `o * stride - padding before + dilation * tap`.

/// Spatial dimensions of the largest convolution.
pub const MAX_DIMS: usize = 3;

/// Sizes that make no convolution.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
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
    /// Weights, input or output of another size than the geometry's.
    #[error("{what} has {found} elements instead of {expected}")]
    Length {
        /// Which one.
        what: &'static str,
        /// Elements found.
        found: usize,
        /// Elements expected.
        expected: usize,
    },
    /// The system refused memory for the packed weights.
    #[error(transparent)]
    Memory(#[from] plutino_tensor::TensorError),
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axis {
    window: Window,
    input: usize,
    output: usize,
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
        Ok(Self { window, input, output: free / window.stride + 1 })
    }

    /// A transposed convolution's dimension, as that of the convolution whose gradient it is: what
    /// the transposed convolution reads is [`Axis::output`] here, what it writes is
    /// [`Axis::input`].
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
        let image = full.checked_sub(both).filter(|&n| n > 0);
        let image = image.ok_or(ConvError::NothingLeft { padding: both, full })?;
        Ok(Self { window, input: image, output: input })
    }

    /// The window.
    pub fn window(&self) -> Window {
        self.window
    }

    /// Size of the image.
    pub fn input(&self) -> usize {
        self.input
    }

    /// Number of windows.
    pub fn output(&self) -> usize {
        self.output
    }

    /// The element that stands at a position of the padded image; none for zero.
    pub fn source(&self, padded: usize) -> Option<usize> {
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
    pub fn tap(&self, place: usize, tap: usize) -> Option<usize> {
        self.source(place * self.window.stride + tap * self.window.dilation)
    }

    /// Whether there is one tap at every place and no padding.
    pub fn is_pointwise(&self) -> bool {
        let Window { kernel, stride, padding, .. } = self.window;
        (kernel, stride, padding) == (1, 1, (0, 0))
    }
}

/// All sizes of a convolution. Images are batch x channels x depth x height x width; missing
/// leading dimensions are 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConvGeometry {
    batch: usize,
    groups: usize,
    in_channels: usize,
    out_channels: usize,
    axes: [Axis; MAX_DIMS],
}

impl ConvGeometry {
    /// Checks that the sizes go together and that no product of them overflows.
    ///
    /// # Errors
    /// [`ConvError::Dims`], [`ConvError::Groups`], [`ConvError::Overflow`].
    pub fn new(
        batch: usize,
        groups: usize,
        in_channels: usize,
        out_channels: usize,
        axes: &[Axis],
    ) -> Result<Self, ConvError> {
        if axes.is_empty() || axes.len() > MAX_DIMS {
            return Err(ConvError::Dims(axes.len()));
        }
        for channels in [in_channels, out_channels] {
            if groups == 0 || channels == 0 || !channels.is_multiple_of(groups) {
                return Err(ConvError::Groups { channels, groups });
            }
        }
        let trivial = Axis { window: Window::default(), input: 1, output: 1 };
        let mut all = [trivial; MAX_DIMS];
        all[MAX_DIMS - axes.len()..].copy_from_slice(axes);
        // The largest numbers that any kernel computes: weights, images, results, padded images cut
        // into phases (windows.rs), and the windows of all places side by side.
        let taps = product(all.iter().map(|a| a.window.kernel))?;
        let places = product(all.iter().map(|a| a.output))?;
        let image = product(all.iter().map(|a| a.input))?;
        let padded = product(all.iter().map(|a| {
            let Window { kernel, stride, dilation, .. } = a.window;
            let reach = (kernel - 1).saturating_mul(dilation) / stride + 1;
            a.output.saturating_add(reach).saturating_mul(kernel.min(stride))
        }))?;
        let (channels, batch_) = (in_channels.max(out_channels), batch.max(1));
        product([places, channels, batch_])?;
        product([image, channels, batch_])?;
        product([padded, channels, batch_])?;
        product([taps, in_channels, out_channels])?;
        product([taps, in_channels, places])?;
        Ok(Self { batch, groups, in_channels, out_channels, axes: all })
    }

    /// Images.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Groups of channels.
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// Channels of the image, of all groups.
    pub fn in_channels(&self) -> usize {
        self.in_channels
    }

    /// Channels of the result, of all groups.
    pub fn out_channels(&self) -> usize {
        self.out_channels
    }

    /// Depth, height, width.
    pub fn axes(&self) -> &[Axis; MAX_DIMS] {
        &self.axes
    }

    /// Channels of the image that one output channel sees.
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

    /// Elements of one channel of the image.
    pub fn in_plane(&self) -> usize {
        self.axes.iter().map(|a| a.input).product()
    }

    /// Elements of one channel of the result.
    pub fn out_plane(&self) -> usize {
        self.axes.iter().map(|a| a.output).product()
    }

    /// Elements of all images.
    pub fn input_len(&self) -> usize {
        self.batch * self.in_channels * self.in_plane()
    }

    /// Elements of all results.
    pub fn output_len(&self) -> usize {
        self.batch * self.out_channels * self.out_plane()
    }

    /// Elements of the weights: output channels x channels of a group x taps.
    pub fn weight_len(&self) -> usize {
        self.out_channels * self.group_in() * self.taps()
    }

    /// Multiplications and additions, counted separately.
    pub fn flops(&self) -> usize {
        let terms = self.group_in().saturating_mul(self.taps());
        self.output_len().saturating_mul(2).saturating_mul(terms)
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
