//! Shapes of inputs on the command line.

use plutino::Shape;

/// `[NAME=]1x3x224x224`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShapeArg {
    pub(crate) name: Option<String>,
    pub(crate) shape: Shape,
}

impl std::fmt::Display for ShapeArg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "{name}=")?;
        }
        let dims: Vec<String> = self.shape.iter().map(usize::to_string).collect();
        f.write_str(&dims.join("x"))
    }
}

impl std::str::FromStr for ShapeArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, dims) = match text.split_once('=') {
            Some((name, dims)) => (Some(name.to_owned()), dims),
            None => (None, text),
        };
        let shape: Result<Vec<usize>, _> = match dims {
            "scalar" => Ok(Vec::new()),
            dims => dims.split('x').map(str::parse).collect(),
        };
        match shape {
            Ok(shape) => Ok(Self { name, shape: shape.into() }),
            Err(_) => Err("sizes as in 1x3x224x224, or 'scalar'".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shape_syntax() {
        let shape: ShapeArg = "x=1x3".parse().unwrap();
        assert_eq!((shape.name.as_deref(), shape.shape.dims()), (Some("x"), &[1, 3][..]));
        assert_eq!("scalar".parse::<ShapeArg>().unwrap().shape.rank(), 0);
        for bad in ["", "1x", "axb", "-1"] {
            assert!(bad.parse::<ShapeArg>().is_err(), "{bad}");
        }
    }
}
