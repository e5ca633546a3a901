//! Reads, edits and writes PNNX model files (.pnnx.param and .pnnx.bin).
