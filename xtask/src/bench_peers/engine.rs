//! The engines that are compared.

use std::process::Command;

use clap::ValueEnum;
use plutino::Precision;

use super::Setup;
use super::prepare::Case;

/// An engine. Names are those of `xtask/python/peers/engines.py`, and ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    /// This project.
    Plutino,
    /// Microsoft's ONNX Runtime.
    #[value(name = "onnxruntime")]
    OnnxRuntime,
    /// Intel's OpenVINO.
    #[value(name = "openvino")]
    OpenVino,
    /// Tencent's ncnn.
    Ncnn,
    /// PyTorch with TorchInductor.
    #[value(name = "torch.compile")]
    TorchCompile,
    /// OpenVINO as it comes: bf16 where the CPU has it.
    #[value(name = "openvino.bf16")]
    OpenVinoBf16,
    /// ncnn with storage and arithmetic of bf16.
    #[value(name = "ncnn.bf16")]
    NcnnBf16,
    /// TorchInductor under autocast to bf16.
    #[value(name = "torch.compile.bf16")]
    TorchCompileBf16,
    /// PyTorch's interpreter: for reference, no peer.
    Torch,
}

impl Engine {
    pub(super) const ALL: &[Self] = &[
        Self::Plutino,
        Self::OnnxRuntime,
        Self::OpenVino,
        Self::Ncnn,
        Self::TorchCompile,
        Self::OpenVinoBf16,
        Self::NcnnBf16,
        Self::TorchCompileBf16,
        Self::Torch,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Plutino => "plutino",
            Self::OnnxRuntime => "onnxruntime",
            Self::OpenVino => "openvino",
            Self::Ncnn => "ncnn",
            Self::TorchCompile => "torch.compile",
            Self::OpenVinoBf16 => "openvino.bf16",
            Self::NcnnBf16 => "ncnn.bf16",
            Self::TorchCompileBf16 => "torch.compile.bf16",
            Self::Torch => "torch",
        }
    }

    /// Whether ours is measured against it.
    pub(super) fn is_peer(self) -> bool {
        !matches!(self, Self::Plutino | Self::Torch)
    }

    /// Whether it computes with less than f32, whatever ours does.
    fn is_reduced(self) -> bool {
        matches!(self, Self::OpenVinoBf16 | Self::NcnnBf16 | Self::TorchCompileBf16)
    }

    /// Whether it runs a model when nobody chose engines: those of our precision.
    pub(super) fn joins(self, case: &Case, precision: Precision) -> bool {
        let torch = matches!(self, Self::TorchCompile | Self::TorchCompileBf16 | Self::Torch);
        let alike = match precision {
            Precision::Medium => self.is_reduced() || self == Self::Plutino,
            _ => !self.is_reduced(),
        };
        alike && (case.torch || !torch)
    }

    /// The format of the model that it loads, as `peers/prepare.py` names it.
    pub(super) fn format(self) -> &'static str {
        match self {
            Self::Plutino | Self::TorchCompile | Self::TorchCompileBf16 | Self::Torch => "pnnx",
            Self::OnnxRuntime | Self::OpenVino | Self::OpenVinoBf16 => "onnx",
            Self::Ncnn | Self::NcnnBf16 => "ncnn",
        }
    }

    /// The process that runs a model with this engine.
    pub(super) fn worker(self, setup: &Setup, case: &Case, threads: usize) -> Command {
        let mut command = match self {
            Self::Plutino => {
                let mut command = Command::new(&setup.ours);
                command.args(["bench-worker", "--precision", setup.precision.name()]);
                if setup.mmap {
                    command.arg("--mmap");
                }
                command
            }
            _ => python(setup, threads, self.name()),
        };
        command.arg("--folder").arg(&case.folder).arg("--threads").arg(threads.to_string());
        command
    }
}

fn python(setup: &Setup, threads: usize, engine: &str) -> Command {
    let mut command = super::prepare::module(&setup.python, &setup.root, "peers.worker");
    command
        .args(["--engine", engine])
        .env("OMP_NUM_THREADS", threads.to_string()) // ncnn's and PyTorch's threads
        .env("TORCHINDUCTOR_CACHE_DIR", setup.cache.join("inductor"));
    command
}
