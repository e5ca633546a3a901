//! Tensors of the plutino inference engine: dtypes, shapes, aligned buffers, views.
