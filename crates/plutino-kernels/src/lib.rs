//! CPU kernels of the plutino inference engine.
