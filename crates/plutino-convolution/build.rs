//! Says whether the crate is built without optimisation: `cfg(unoptimised)`.
//!
//! Kernels are fast because everything in them is inlined into one function for each instruction
//! set. A compiler that does not optimise inlines as it is told, too, but gives each intermediate
//! value a place of its own on the stack: frames of megabytes, on threads that have two. Functions
//! with large bodies are therefore `inline(always)` only where the compiler optimises (`cargo xtask
//! downstream` holds the bound).
#![allow(clippy::print_stdout)] // how a build script speaks

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(unoptimised)");
    if std::env::var("OPT_LEVEL").is_ok_and(|level| level == "0") {
        println!("cargo::rustc-cfg=unoptimised");
    }
}
