//! How products are cut and packed. What they compute is tested in `tests/kernels/gemm.rs`.

use super::*;
use plutino_cpu::Par;
use plutino_reference::testkit::random;
use plutino_tensor::Floats;

#[test]
fn tiles_take_all_rows_and_few_are_small() {
    for mr in [6, 12] {
        for rows in 0..60 {
            let mut end = 0;
            for tiles in tile::row_tiles(rows, mr) {
                assert_eq!(tiles.rows.start, end);
                end = tiles.rows.end;
                assert_eq!(tiles.rows.len(), tiles.count() * tiles.each, "{tiles:?} of {rows}");
                let enough = tiles.each >= 3 || rows < mr;
                assert!(enough && tiles.each <= mr, "{tiles:?} of {rows}");
                // A seam lies inside a panel, and what is not full is one tile.
                assert_eq!(tiles.seam, tiles.rows.start % mr != 0, "{tiles:?} of {rows}");
                assert!(tiles.each == mr || tiles.count() == 1, "{tiles:?} of {rows}");
            }
            assert_eq!(end, rows);
        }
    }
}

#[test]
fn rows_in_one_set_of_the_first_level_cache() {
    let machine = Machine { l1: 32 << 10, ..Machine::default() };
    for isa in Isa::available() {
        let target = Target { isa, machine };
        let many = target.mr() > 8;
        for (rows, stride, crowds) in [
            (50, 3072, many),
            (50, 1024, many),
            (50, 1536, false),
            (8, 2048, many),
            (7, 1024, false),
        ] {
            assert_eq!(target.crowds(rows, stride), crowds, "{rows} rows of {stride}");
        }
        let roomy = Target { machine: Machine { l1: 64 << 10, ..machine }, ..target };
        assert!(!roomy.crowds(50, 1024));
    }
}

#[test]
fn weights_are_packed_where_they_lie() {
    let (n, k) = (37, 29);
    let weights = random(n * k, 1);
    let mut bytes = vec![0u8]; // an odd address, as in a file
    bytes.extend(weights.iter().flat_map(|w| w.to_le_bytes()));
    let stored = Floats::from_bytes(&bytes[1..]).unwrap();
    for strides in [(k, 1), (1, n)] {
        let pack = |isa, data| {
            let matrix = Strided::left(data, (n, k), strides).scaled(2.0);
            let (target, par) = (Target::this(isa), Par::serial());
            let packed = PackedMatrix::of(target, Side::Right, &matrix, &par).unwrap();
            packed.as_slice().to_vec()
        };
        for isa in Isa::available() {
            assert_eq!(pack(isa, stored), pack(isa, Floats::from(&weights)));
        }
    }
}

#[test]
fn chains_are_the_same_on_every_machine_and_even() {
    for depth in 1..2000 {
        let (kc, blocks) = (Target::kc(depth), depth.div_ceil(tile::CHAIN));
        assert!(kc <= tile::CHAIN && depth.div_ceil(kc) == blocks, "{depth} in chains of {kc}");
    }
    assert_eq!(Target::kc(0), 0);
}
