//! Scaled dot-product attention by the definition.

pub use plutino_products::attention::attention_any as attention;
