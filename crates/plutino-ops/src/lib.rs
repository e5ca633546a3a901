//! PyTorch's operators, as PNNX names them, for the plutino inference engine.
