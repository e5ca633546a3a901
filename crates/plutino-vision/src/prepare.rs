//! From pixels to the numbers that a model takes.

use plutino::{DType, Tensor};

use crate::{Pixels, Placement, Recipe, VisionError, Wanted};

impl Recipe {
    /// A picture as the model takes it, of shape (1, channels, height, width), dtype f32: grey for
    /// one channel, else red, green, blue unless the recipe has another order. Also, where its
    /// pixels went.
    ///
    /// # Errors
    /// The model takes neither 1 nor 3 channels, the recipe does not fit it, the picture would have
    /// too many pixels, or there is too little memory.
    pub fn prepare(
        &self,
        picture: &Pixels,
        wanted: Wanted,
    ) -> Result<(Tensor, Placement), VisionError> {
        let channels = wanted.channels;
        if !matches!(channels, 1 | 3) {
            return Err(VisionError::Channels { channels });
        }
        let scale = Scale::new(self, channels)?;
        let (pixels, placement) = match picture.channels == channels {
            true => self.place(picture, wanted.size)?,
            false => self.place(&picture.clone().into_channels(channels), wanted.size)?,
        };
        let (h, w, c) = (pixels.size.height as usize, pixels.size.width as usize, channels);
        let from = |channel| if self.reverses_channels() { c - 1 - channel } else { channel };
        let mut tensor = Tensor::zeros(DType::F32, [1, c, h, w])?;
        let planes = tensor.as_mut_slice::<f32>()?.chunks_exact_mut((h * w).max(1));
        for (channel, plane) in planes.enumerate() {
            let table = scale.of_bytes(from(channel));
            let bytes = pixels.bytes.iter().skip(from(channel)).step_by(c);
            for (to, &byte) in plane.iter_mut().zip(bytes) {
                *to = table[usize::from(byte)];
            }
        }
        Ok((tensor, placement))
    }
}

/// Mean and standard deviation for each channel.
struct Scale(Vec<(f32, f32)>);

impl Scale {
    fn new(recipe: &Recipe, channels: usize) -> Result<Self, VisionError> {
        let each = |member: &'static str, values: &[f32], default: f32| match values.len() {
            0 => Ok(vec![default; channels]), // bounded: channels of a picture
            1 => Ok(vec![values[0]; channels]),
            n if n == channels => Ok(values.to_vec()),
            found => Err(VisionError::PerChannel { member, found, channels }),
        };
        let (mean, std) = (each("mean", &recipe.mean, 0.0)?, each("std", &recipe.std, 1.0)?);
        let wrong = |member, wanted| move |&found| VisionError::Number { member, wanted, found };
        if let Some(found) = mean.iter().find(|number| !number.is_finite()) {
            return Err(wrong("mean", "a finite number")(found));
        }
        if let Some(found) = std.iter().find(|number| !number.is_normal()) {
            return Err(wrong("std", "a finite number other than 0")(found));
        }
        Ok(Self(mean.into_iter().zip(std).collect()))
    }

    /// What each byte of a channel becomes.
    fn of_bytes(&self, channel: usize) -> [f32; 256] {
        let (mean, std) = self.0.get(channel).copied().unwrap_or((0.0, 1.0));
        std::array::from_fn(|byte| (byte as f32 / 255.0 - mean) / std)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Size;
    use png::{BitDepth, ColorType};

    fn encoded(color: ColorType, depth: BitDepth, palette: &[u8], data: &[u8]) -> Vec<u8> {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, 2, 2);
        encoder.set_color(color);
        encoder.set_depth(depth);
        if !palette.is_empty() {
            encoder.set_palette(palette);
        }
        encoder.write_header().unwrap().write_image_data(data).unwrap();
        file
    }

    fn decode(file: &[u8], wanted: Wanted, recipe: &Recipe) -> Result<Tensor, VisionError> {
        Ok(recipe.prepare(&Pixels::read(file)?, wanted)?.0)
    }

    /// Red, green; blue, white.
    const PIXELS: [u8; 12] = [255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255];

    fn png() -> Vec<u8> {
        encoded(ColorType::Rgb, BitDepth::Eight, &[], &PIXELS)
    }

    #[test]
    fn every_sort_of_png_is_read() {
        let expected = decode(&png(), RGB, &args(&[], &[], None)).unwrap();
        let wide: Vec<u8> = PIXELS.iter().flat_map(|&x| [x, x]).collect();
        let clear: Vec<u8> = PIXELS.chunks(3).flat_map(|p| [p[0], p[1], p[2], 7]).collect();
        for file in [
            encoded(ColorType::Indexed, BitDepth::Two, &PIXELS, &[0b0001_0000, 0b1011_0000]),
            encoded(ColorType::Rgb, BitDepth::Sixteen, &[], &wide),
            encoded(ColorType::Rgba, BitDepth::Eight, &[], &clear),
        ] {
            assert_eq!(decode(&file, RGB, &args(&[], &[], None)).unwrap(), expected);
        }
        let grey = encoded(ColorType::Grayscale, BitDepth::One, &[], &[0b1000_0000, 0b0100_0000]);
        let clear =
            encoded(ColorType::GrayscaleAlpha, BitDepth::Eight, &[], &[255, 1, 0, 2, 0, 3, 255, 4]);
        for file in [grey, clear] {
            let t =
                decode(&file, Wanted { channels: 1, size: None }, &args(&[], &[], None)).unwrap();
            assert_eq!(t.as_slice::<f32>().unwrap(), [1., 0., 0., 1.]);
            let t = decode(&file, RGB, &args(&[], &[], None)).unwrap();
            assert_eq!(t.as_slice::<f32>().unwrap()[4..8], [1., 0., 0., 1.]);
        }
    }

    fn args(mean: &[f32], std: &[f32], size: Option<&str>) -> Recipe {
        let size = size.map(|s| s.parse().unwrap());
        Recipe { mean: mean.to_vec(), std: std.to_vec(), size, ..Recipe::default() }
    }

    const RGB: Wanted = Wanted { channels: 3, size: None };

    #[test]
    fn channels_are_planes_in_rgb_order() {
        let t = decode(&png(), RGB, &args(&[], &[], None)).unwrap();
        assert_eq!(t.shape().dims(), [1, 3, 2, 2]);
        let expected = [1., 0., 0., 1., 0., 1., 0., 1., 0., 0., 1., 1.];
        assert_eq!(t.as_slice::<f32>().unwrap(), expected);
    }

    #[test]
    fn mean_and_std_for_each_channel() {
        let t = decode(&png(), RGB, &args(&[0.5, 0.25, 0.0], &[0.5], None)).unwrap();
        let expected = [1., -1., -1., 1., -0.5, 1.5, -0.5, 1.5, 0., 0., 2., 2.];
        assert_eq!(t.as_slice::<f32>().unwrap(), expected);
        assert!(
            decode(&png(), RGB, &args(&[0.5, 0.5], &[], None))
                .unwrap_err()
                .to_string()
                .contains("mean")
        );
        for (member, mean, std) in [
            ("std", 0.0, 0.0),
            ("std", 0.0, 1e-40),
            ("std", 0.0, f32::NAN),
            ("std", 0.0, f32::INFINITY),
            ("mean", f32::NAN, 1.0),
            ("mean", f32::NEG_INFINITY, 1.0),
        ] {
            let error = decode(&png(), RGB, &args(&[mean], &[std], None)).unwrap_err();
            assert!(error.to_string().starts_with(member), "{error}");
        }
    }

    #[test]
    fn sizes_and_grey() {
        let grey = Wanted { channels: 1, size: Some(Size { height: 4, width: 6 }) };
        let t = decode(&png(), grey, &args(&[], &[], None)).unwrap();
        assert_eq!(t.shape().dims(), [1, 1, 4, 6]);
        let t = decode(&png(), grey, &args(&[], &[], Some("3x5"))).unwrap();
        assert_eq!(t.shape().dims(), [1, 1, 3, 5]);
        assert!(decode(&png(), Wanted { channels: 4, size: None }, &args(&[], &[], None)).is_err());
        assert!(decode(b"\x89PNG nonsense", RGB, &args(&[], &[], None)).is_err());
    }
}
