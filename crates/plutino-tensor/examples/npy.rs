//! Writes and reads NumPy's files, and looks at tensors through views.
//!
//! ```console
//! $ cargo run -p plutino-tensor --example npy -- IMAGES.npy
//! ```
//! Without an argument a small file is made for it, in the system's folder for temporary files.
#![allow(clippy::print_stdout)] // examples report on the terminal

use plutino_tensor::{Tensor, npy};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let path = match std::env::args().nth(1) {
        Some(path) => path.into(),
        None => {
            let path = std::env::temp_dir().join("plutino_example.npy");
            let values: Vec<f32> = (0..24).map(|i| i as f32 / 4.0).collect();
            npy::save(&path, &Tensor::from_slice(&values, [2, 3, 4])?.view())?;
            path
        }
    };
    let tensor = npy::load(&path)?;
    println!("{} holds {}", path.display(), tensor.spec());

    // A view has the same memory and other strides: nothing is copied until somebody asks.
    let mut order: Vec<usize> = (0..tensor.shape().rank()).collect();
    order.reverse();
    let transposed = tensor.view().permute(&order)?.to_tensor()?;
    println!("dimensions reversed: {}", transposed.spec());
    println!("{tensor}");
    Ok(())
}
