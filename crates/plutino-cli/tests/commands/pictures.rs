//! `classify`, `detect` and `segment`: pictures in; names, boxes and masks out.

use crate::{Folder, digits, fails, json, ok, plutino, run};

/// The JSON lines of a command.
fn lines(args: &[&str]) -> Vec<serde_json::Value> {
    ok(args).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn classify_names_what_pictures_show() {
    let model = digits("model.pnnx.param");
    let (three, seven) = (digits("samples/3.png"), digits("samples/7.png"));
    let out = ok(&["classify", &model, "-i", &three, "--top", "2"]);
    let best = out.lines().nth(1).unwrap();
    assert!(best.contains('█') && best.ends_with(" 3"), "{out}");
    assert_eq!(out.lines().count(), 3, "{out}");
    // A batch of two: the same numbers as one after the other.
    let both = lines(&["classify", &model, "-i", &three, &seven, "--json"]);
    assert_eq!(
        (&both[0]["classes"][0]["index"], &both[1]["classes"][0]["index"]),
        (&3.into(), &7.into())
    );
    let alone = lines(&["classify", &model, "-i", &seven, "--json"]);
    let probability = |v: &serde_json::Value| v["classes"][0]["probability"].as_f64().unwrap();
    assert!((probability(&alone[0]) - probability(&both[1])).abs() < 1e-6);
}

#[test]
fn classify_reads_folders_and_standard_input() {
    let (model, samples) = (digits("model.pnnx.param"), digits("samples"));
    let csv = ok(&["classify", &model, "-i", &samples, "--top", "1", "--csv"]);
    let mut rows = csv.lines();
    assert_eq!(rows.next(), Some("picture,rank,class,name,probability"));
    for (digit, row) in rows.clone().enumerate() {
        assert!(row.contains(&format!("{digit}.png,1,{digit},,")), "{row}");
    }
    assert_eq!(rows.count(), 10);
    let picture = std::fs::read(digits("samples/5.png")).unwrap();
    let out = plutino(&["classify", &model, "-i", "-", "--json"]).write_stdin(picture).output();
    let out: serde_json::Value = serde_json::from_slice(&out.unwrap().stdout).unwrap();
    assert_eq!((&out["picture"], &out["classes"][0]["index"]), (&"-".into(), &5.into()));
    let empty = Folder::new();
    assert!(fails(&["classify", &model, "-i", &empty.path("")], 2).contains("no picture lies"));
    assert!(fails(&["classify", &model, "-i", "-", "-"], 2).contains("standard input"));
}

/// As a camera held on its side has written it, whatever the format.
#[test]
fn pictures_are_upright_unless_that_is_unwanted() {
    let model = digits("model.pnnx.param");
    let pictures = concat!(env!("CARGO_MANIFEST_DIR"), "/../plutino-vision/tests/pictures");
    let probability = |args: &[&str]| {
        let args = [&["classify", &model, "--json", "--top", "10", "-i"], args].concat();
        let mut classes = lines(&args).remove(0)["classes"].as_array().unwrap().clone();
        classes.sort_by_key(|class| class["index"].as_i64());
        classes.iter().map(|class| class["probability"].to_string()).collect::<Vec<_>>()
    };
    let of = |name: &str| format!("{pictures}/{name}");
    let upright = probability(&[&of("rgb.png")]);
    for same in ["turned.png", "turned.webp", "lossless.webp", "rgb.bmp"] {
        assert_eq!(probability(&[&of(same)]), upright, "{same}");
    }
    assert_ne!(probability(&[&of("turned.png"), "--no-exif"]), upright);
    assert!(fails(&["classify", &model, "-i", &of("bits.bmp")], 2).contains("1 bits a pixel"));
}

#[test]
fn labels_that_are_too_few_are_refused() {
    let (model, picture) = (digits("model.pnnx.param"), digits("samples/3.png"));
    let folder = Folder::new();
    let ten = folder.write("ten", "zero\none\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n");
    let nine = folder.write("nine", "a\n".repeat(9));
    for command in [&["classify"][..], &["run", "--top", "1"]] {
        let args = |labels| [command, &[&model, "-i", &picture, "--labels", labels]].concat();
        assert!(ok(&args(&ten)).contains("three"));
        assert!(fails(&args(&nine), 2).contains("has 9 names, and the model 10 classes"));
        assert!(fails(&args("no such file"), 2).contains("imagenet, coco, voc"));
        assert!(ok(&args("imagenet")).contains("tiger shark")); // the fourth of 1000
    }
}

#[test]
fn a_file_beside_the_model_says_how_pictures_are_prepared() {
    let folder = Folder::new();
    for name in ["model.pnnx.param", "model.pnnx.bin"] {
        folder.write(name, std::fs::read(digits(name)).unwrap());
    }
    let (model, picture) = (folder.path("model.pnnx.param"), digits("samples/3.png"));
    let plain = json(&["run", &model, "-i", &picture, "--json"]);
    let names: Vec<String> = (0..10).map(|digit| format!("digit {digit}")).collect();
    let recipe = serde_json::json!({"mean": [0.5], "std": [0.25], "labels": names});
    folder.write("model.preprocess.json", recipe.to_string());
    let prepared = json(&["run", &model, "-i", &picture, "--json"]);
    let elements = |v: &serde_json::Value| v["runs"][0]["outputs"][0]["elements"].clone();
    assert_ne!(elements(&plain), elements(&prepared));
    let by_hand = ["run", &model, "-i", &picture, "--json", "--mean", "0.5", "--std", "0.25"];
    assert_eq!(elements(&json(&by_hand)), elements(&prepared));
    // The command line counts more.
    let back = ["run", &model, "-i", &picture, "--json", "--mean", "0", "--std", "1"];
    assert_eq!(elements(&json(&back)), elements(&plain));
    let out = ok(&["classify", &model, "-i", &picture, "--mean", "0", "--std", "1"]);
    assert!(out.lines().nth(1).unwrap().ends_with("digit 3"), "{out}");
    folder.write("model.preprocess.json", r#"{"mean": 0, "sice": 8}"#);
    let (_, err) = run(&["run", &model, "-i", &picture], 2);
    assert!(err.contains("model.preprocess.json: \"sice\" is not known"), "{err}");
    // In the words of Hugging Face.
    let recipe = serde_json::json!({"do_normalize": true, "image_mean": [0.5], "image_std": [0.25],
        "do_rescale": true, "rescale_factor": 1.0 / 255.0, "do_resize": true, "resample": 2,
        "size": {"height": 8, "width": 8}});
    folder.write("model.preprocess.json", recipe.to_string());
    assert_eq!(elements(&json(&["run", &model, "-i", &picture, "--json"])), elements(&prepared));
}

/// What a decoder would paint grey is no picture.
#[test]
fn pictures_that_are_cut_short_are_refused() {
    let (folder, model) = (Folder::new(), digits("model.pnnx.param"));
    let pictures = concat!(env!("CARGO_MANIFEST_DIR"), "/../plutino-vision/tests/pictures");
    for name in ["turned.jpg", "rgb.png", "lossless.webp", "lossy.webp", "rgb.bmp"] {
        let whole = std::fs::read(format!("{pictures}/{name}")).unwrap();
        let cut = folder.write(name, &whole[..whole.len() * 3 / 4]);
        for command in ["classify", "run"] {
            let error = fails(&[command, &model, "-i", &cut], 2);
            assert!(error.contains(&format!("{name}: ")), "{error}");
        }
    }
}

/// Arguments that would make NaN of every pixel.
#[test]
fn mean_and_std_are_numbers_that_pictures_survive() {
    let (model, picture) = (digits("model.pnnx.param"), digits("samples/3.png"));
    for (option, values) in
        [("--mean", &["nan", "inf", "-inf"][..]), ("--std", &["0", "nan", "inf", "1e-45"])]
    {
        for value in values {
            let error = fails(&["run", &model, "-i", &picture, &format!("{option}={value}")], 2);
            assert!(error.contains(option) && error.contains("a finite number"), "{error}");
        }
    }
}

/// A file of the fixture `shapes`.
fn shapes(name: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/shapes/");
    format!("{folder}{name}")
}

const PICTURES: [&str; 4] = ["0.png", "1.png", "2.png", "3.png"];

fn corners(value: &serde_json::Value) -> [f64; 4] {
    std::array::from_fn(|i| value[i].as_f64().unwrap())
}

/// Intersection over union.
fn iou(a: [f64; 4], b: [f64; 4]) -> f64 {
    let side = |axis: usize| (a[axis + 2].min(b[axis + 2]) - a[axis].max(b[axis])).max(0.0);
    let area = |c: [f64; 4]| (c[2] - c[0]) * (c[3] - c[1]);
    let both = side(0) * side(1);
    both / (area(a) + area(b) - both)
}

#[test]
fn detect_finds_every_shape_and_nothing_else() {
    let truth = std::fs::read(shapes("truth.json")).unwrap();
    let truth: serde_json::Value = serde_json::from_slice(&truth).unwrap();
    let folder = Folder::new();
    let drawn = folder.path("drawn");
    let pictures = PICTURES.map(shapes);
    let pictures: Vec<&str> = pictures.iter().map(String::as_str).collect();
    let model = shapes("detector/model.pnnx.param");
    let args = [&["detect", &model, "-o", &drawn, "--json", "-i"], &pictures[..]].concat();
    let reports = lines(&args);
    for (report, name) in reports.iter().zip(PICTURES) {
        let (found, there) = (report["boxes"].as_array().unwrap(), truth[name].as_array().unwrap());
        assert_eq!(found.len(), there.len(), "{report}");
        for shape in there {
            let mut same = found.iter().filter(|f| f["name"] == shape["name"]);
            let near = |f: &serde_json::Value| iou(corners(&f["corners"]), corners(&shape["box"]));
            assert!(same.any(|f| near(f) > 0.7), "{shape} in {report}");
        }
        let (size, _, pixels) = read_png(&format!("{drawn}/{name}"));
        let (_, _, before) = read_png(&shapes(name));
        assert_eq!((size, pixels.len()), ((160, 120), before.len()));
        // Every frame is there: its corner has another colour than before.
        for one in found {
            let [x, y, _, bottom] = corners(&one["corners"]).map(f64::round);
            let at = 3 * ((bottom.min(120.0) - 1.0).max(y) as usize * 160 + x as usize);
            assert_ne!(pixels[at..at + 3], before[at..at + 3], "{one}");
        }
    }
    // A high threshold, and a layout that the output does not have.
    let none = lines(&["detect", &model, "-i", pictures[0], "--score", "1", "--json"]);
    assert_eq!(none[0]["boxes"].as_array().unwrap().len(), 0);
    let wrong = ["detect", &model, "-i", pictures[0], "--layout", "end-to-end"];
    assert!(fails(&wrong, 3).contains("(1,7,144)"));
    let one = folder.path("one.png");
    let several = [&["detect", &model, "-o", &one, "-i"], &pictures[..]].concat();
    assert!(fails(&several, 2).contains("give a folder"));
    let jpeg = folder.path("one.jpg");
    let error = fails(&["detect", &model, "-o", &jpeg, "-i", pictures[0]], 2);
    assert!(error.contains("ends in .png") && !std::path::Path::new(&jpeg).exists(), "{error}");
    assert!(!std::path::Path::new(&one).exists());
    let capitals = folder.path("one.PNG");
    ok(&["detect", &model, "-o", &capitals, "-i", pictures[0]]);
    assert_eq!(read_png(&capitals).0, (160, 120));
    let csv = ok(&["detect", &model, "-i", pictures[0], "--csv"]);
    assert_eq!(csv.lines().count() - 1, truth["0.png"].as_array().unwrap().len());
}

/// Width and height, the type of colours, and the bytes of a PNG file.
fn read_png(path: &str) -> ((u32, u32), png::ColorType, Vec<u8>) {
    let file = std::io::BufReader::new(std::fs::File::open(path).unwrap());
    let mut reader = png::Decoder::new(file).read_info().unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut bytes).unwrap();
    ((info.width, info.height), info.color_type, bytes)
}

#[test]
fn segment_covers_every_shape() {
    let folder = Folder::new();
    let (drawn, masks) = (folder.path("drawn"), folder.path("masks"));
    let pictures = PICTURES.map(shapes);
    let pictures: Vec<&str> = pictures.iter().map(String::as_str).collect();
    let model = shapes("segmenter/model.pnnx.param");
    let args = ["segment", &model, "-o", &drawn, "--mask", &masks, "--json", "-i"];
    let reports = lines(&[&args, &pictures[..]].concat());
    for (report, name) in reports.iter().zip(PICTURES) {
        let (size, colour, mask) = read_png(&format!("{masks}/{name}"));
        assert_eq!((size, colour), ((160, 120), png::ColorType::Indexed));
        let (_, _, there) = read_png(&shapes(&name.replace(".png", ".mask.png")));
        let classes = report["classes"].as_array().unwrap();
        for class in 0..4u8 {
            let count = |is: &dyn Fn(u8, u8) -> bool| {
                mask.iter().zip(&there).filter(|(a, b)| is(**a, **b)).count()
            };
            let union = count(&|a, b| a == class || b == class);
            let both = count(&|a, b| a == class && b == class);
            if there.contains(&class) {
                assert!(both as f64 > 0.8 * union as f64, "{name}, {class}: {both} of {union}");
            }
            let said = classes.iter().find(|c| c["class"] == class).map(|c| c["pixels"].clone());
            let pixels = mask.iter().filter(|c| **c == class).count();
            assert_eq!(said.unwrap_or_else(|| 0.into()), pixels, "{report}");
        }
        let coloured = classes.iter().filter(|c| c["name"] != "ground").count() as u32;
        // A line of the legend for each class below the picture.
        assert_eq!(read_png(&format!("{drawn}/{name}")).0, (160, 120 + 10 * coloured));
    }
    let out = ok(&["segment", &model, "-i", pictures[0]]);
    assert!(out.lines().nth(1).unwrap().ends_with("ground"), "{out}");
}
