//! Every fixture against PyTorch: the error relative to the output's largest value.

use plutino::SessionOptions;
use plutino_fixtures::Fixture;
use plutino_tests::{fixture, inputs, model, run};

macro_rules! fixtures {
    ($($name:ident),+ $(,)?) => {
        /// Fixtures with a test of their own, sorted.
        const TESTED: &[&str] = &[$(stringify!($name)),+];
        $(
            #[test]
            fn $name() {
                agrees_with_pytorch(stringify!($name));
            }
        )+
    };
}

fixtures!(
    bilstm,
    convnext_tiny,
    digits,
    efficientnet_b0,
    minilm,
    mobilenet_v2,
    mobilenet_v3_small,
    resnet18,
    resnet50,
    shufflenet_v2_x1_0,
    squeezenet1_1,
    swin_t,
    unet,
    vit_b_32,
    yolov5s,
);

fn agrees_with_pytorch(name: &str) {
    let fixture = fixture(name);
    let outputs = run(&model(&fixture), &inputs(&fixture), SessionOptions::default());
    let expected = fixture.outputs().unwrap();
    assert_eq!(outputs.len(), expected.len());
    for (ours, theirs) in outputs.iter().zip(&expected) {
        if let Err(mismatch) = theirs.verify(ours) {
            panic!("{name}: {mismatch}");
        }
    }
}

#[test]
fn every_fixture_is_tested() {
    let names: Vec<String> = Fixture::all().unwrap().into_iter().map(|f| f.name).collect();
    assert_eq!(names, TESTED);
}

#[test]
fn digits_are_classified_as_pytorch_does() {
    let fixture = fixture("digits");
    let outputs = run(&model(&fixture), &inputs(&fixture), SessionOptions::default());
    let labels = fixture.labels().unwrap().unwrap();
    let rows = outputs[0].as_slice::<f32>().unwrap().chunks_exact(10);
    let likeliest =
        |row: &[f32]| (0..10).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap() as i64;
    let correct = rows.zip(&labels).filter(|(row, label)| likeliest(row) == **label).count();
    assert_eq!(Some(correct), fixture.correct);
    assert!(correct * 100 >= labels.len() * 97, "{correct} of {}", labels.len());
}
