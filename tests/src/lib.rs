//! Shared helpers of the model-level tests.
