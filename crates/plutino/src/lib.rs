//! Runs PyTorch models that pnnx exported: load, plan, run on the CPU.
