//! `run --carry`: outputs that are inputs of the next run.

use crate::{Folder, fails, ok};
use plutino::Tensor;
use plutino::npy::{self, npz};

/// The sum of everything so far, and a cache of it.
const MODEL: &str = "7767517\n8 6\n\
    pnnx.Input in0 0 1 x #x=(1,2)f32\n\
    pnnx.Input in1 0 1 before #before=(1,2)f32\n\
    pnnx.Input in2 0 1 past #past=(?,2)f32\n\
    pnnx.Expression sum 2 1 x before after expr=add(@0,@1) #after=(1,2)f32\n\
    nn.ReLU relu 1 1 after y #y=(1,2)f32\n\
    torch.cat append 2 1 past after all dim=0 #all=(?,2)f32\n\
    pnnx.Output out0 1 0 y\n\
    pnnx.Output out1 2 0 after all\n";

fn stream(folder: &Folder) -> String {
    let path = folder.path("x.npy");
    let x = Tensor::from_slice(&[1.0f32, -1.0, 2.0, -2.0, 3.0, -3.0], [3, 2]).unwrap();
    npy::save(&path, &x.view()).unwrap();
    path
}

#[test]
fn a_stream_runs_step_by_step() {
    let folder = Folder::new();
    let (model, x) = (folder.write("sum.pnnx.param", MODEL), stream(&folder));
    let (out, after) = (folder.path("out.npz"), folder.path("after.npz"));
    let file = format!("x={x}");
    let run = |more: &[&str]| {
        let carried = ["--stream", "x", "--carry", "after=before", "--carry", "out2=in2"];
        let args = ["run", &model, "-i", &file];
        ok(&[&args[..], &carried[..], more].concat())
    };
    run(&["-o", &out, "--save-state", &after]);
    let written = npz::load(&out).unwrap();
    let names: Vec<&str> = written.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["step0.out0", "step1.out0", "step2.out0"]);
    assert_eq!(written[2].1.as_slice::<f32>().unwrap(), [6.0, 0.0]);
    let state = npz::load(&after).unwrap();
    let names: Vec<&str> = state.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["before", "past"]);
    assert_eq!(state[0].1.as_slice::<f32>().unwrap(), [6.0, -6.0]);
    assert_eq!(state[1].1.as_slice::<f32>().unwrap(), [1., -1., 3., -3., 6., -6.]);
    // On from there, fewer steps, what is carried asked for as well.
    let text = run(&["--load-state", &after, "--steps", "1", "--fetch", "y,after", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    let runs = report["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0]["outputs"][1]["name"], "after");
    assert_eq!(runs[0]["outputs"][1]["elements"][0], 7.0);
}

#[test]
fn what_cannot_be_carried_is_a_usage_error_or_the_models() {
    let folder = Folder::new();
    let (model, x) = (folder.write("sum.pnnx.param", MODEL), stream(&folder));
    let file = format!("x={x}");
    let carry = ["--carry", "after=before", "--carry", "all=past"];
    let run = |more: &[&str]| fails(&[&["run", &model, "-i", &file][..], more].concat(), 2);
    assert!(run(&["--carry", "after"]).contains("give it as OUT=IN"));
    assert!(run(&["--steps", "3"]).contains("--carry"));
    let more = run(&[&carry[..], &["--stream", "x", "--steps", "4"]].concat());
    assert!(more.contains("--steps 4: an input of --stream holds 3"), "{more}");
    let none = run(&[&carry[..], &["--stream", "y"]].concat());
    assert!(none.contains("--stream y: no file is given for such an input"), "{none}");
}
