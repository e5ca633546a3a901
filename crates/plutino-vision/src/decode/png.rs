use png::{Decoder, Info, Transformations};

use plutino::tensor::alloc;

use super::{Raw, Trouble};
use crate::Size;

pub(super) fn decode(file: &[u8]) -> Result<Raw, Trouble> {
    let mut decoder = Decoder::new(std::io::Cursor::new(file));
    decoder.set_transformations(Transformations::normalize_to_color8());
    let &Info { width, height, .. } = decoder.read_header_info().map_err(Trouble::decoder)?;
    let size = Size { height, width }.checked()?;
    let mut reader = decoder.read_info().map_err(Trouble::decoder)?;
    let samples = reader.output_color_type().0.samples();
    let mut bytes = alloc::filled(size.pixels() * samples, 0)?;
    reader.next_frame(&mut bytes).map_err(Trouble::decoder)?;
    let exif = reader.info().exif_metadata.as_ref().map(|exif| exif.to_vec());
    Ok(Raw { size, samples, bytes, exif })
}
