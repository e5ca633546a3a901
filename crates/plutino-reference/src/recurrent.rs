//! Recurrent layers by the definition.

pub use plutino_products::recurrent::recurrent_any as recurrent;
