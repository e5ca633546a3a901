//! `plutino compare` and `run --check-finite`, from outside, on the fixture `compare`.

use crate::run;
use std::path::{Path, PathBuf};

fn fixture(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/compare");
    folder.join(name).display().to_string()
}

/// Compares a model with PyTorch's values.
fn compare(model: &str, args: &[&str], code: i32) -> String {
    let reference = fixture("reference.npz");
    run(&[&["compare", model, "--reference", &reference], args].concat(), code).0
}

/// A copy of the model with another text in it; the folder must be kept.
fn edited(from: &str, to: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("edited.pnnx.param");
    let text = std::fs::read_to_string(fixture("model.pnnx.param")).unwrap();
    assert!(text.contains(from));
    std::fs::write(&path, text.replace(from, to)).unwrap();
    std::fs::copy(fixture("model.pnnx.bin"), folder.path().join("edited.pnnx.bin")).unwrap();
    (folder, path.display().to_string())
}

#[test]
fn the_model_computes_what_pytorch_did() {
    let model = fixture("model.pnnx.param");
    let out = compare(&model, &[], 0);
    assert!(out.starts_with("ok: ") && out.lines().count() == 1, "{out}");
    let out = compare(&model, &["--all", "-t", "2"], 0);
    for part in ["pnnx_expr_4", "nn.LSTM", "conv.", "softmax", "cosine", "ok: "] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let out = compare(&model, &["--isolate"], 0);
    assert!(out.starts_with("ok: 18 values match, each operator alone"), "{out}");
    let out = compare(&model, &["--passes"], 0);
    assert_eq!(out, "ok: all values match, with all passes\n");
    // Of products of bf16 no more is asked than they can.
    let out = compare(&model, &["--precision", "medium"], 0);
    assert!(out.starts_with("ok: "), "{out}");
    let out = compare(&model, &["--isa"], 0);
    assert!(out.contains("scalar"), "{out}");
    // Without passes, every operand exists.
    let passes = ["--disable", "fuse,chain,layout,batch_norm", "--json"];
    let out = compare(&model, &passes, 0);
    assert!(out.contains("\"unseen\": []"), "{out}");
}

#[test]
fn an_edited_operator_is_named() {
    let (folder, model) = edited("sqrt(add(abs(@2),1))", "sqrt(add(abs(@2),1.001))");
    let out = compare(&model, &[], 1);
    let first = "first: operand 8 (1,8,4,4)f32 of pnnx.Expression 'pnnx_expr_4', line 10";
    assert!(out.contains(first), "{out}");
    assert!(out.contains("kernel elementwise.") && out.contains("inputs 7 (1,8,4,4)f32"), "{out}");
    assert!(out.contains("alone, on the reference's inputs, it is wrong as well"), "{out}");
    assert!(out.contains("128 of 128 elements differ"), "{out}");
    assert!(out.lines().last().unwrap().starts_with("MISMATCH: "), "{out}");
    // Alone, the others are right.
    let out = compare(&model, &["--isolate"], 1);
    assert!(out.contains("MISMATCH: of 18 values 1 differs"), "{out}");
    let out = compare(&model, &["--passes"], 1);
    assert!(out.contains("no pass is to blame"), "{out}");
    assert!(compare(&model, &["--tolerance", "0.5"], 0).starts_with("ok: "));
    let json = compare(&model, &["--json"], 1);
    // The page paints what was compared.
    let errors = folder.path().join("errors.json");
    std::fs::write(&errors, &json).unwrap();
    let (errors, page) = (errors.display().to_string(), folder.path().join("page.html"));
    let page = page.display().to_string();
    let told =
        run(&["view", &model, "--no-profile", "--errors", &errors, "-o", &page, "--json"], 0).0;
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["page"], page.as_str());
    let data = crate::view::data(&std::fs::read_to_string(&page).unwrap());
    let error = |name: &str| {
        let operators = data["operators"].as_array().unwrap();
        operators.iter().find(|op| op["name"] == name).unwrap()["error"].as_f64()
    };
    assert!(error("pnnx_expr_4") > Some(1e-5) && error("conv") < Some(1e-6), "{told}");
    for part in ["\"verdict\": \"mismatch\"", "\"culprits\": [", "\"cosine\":", "\"index\": ["] {
        assert!(json.contains(part), "{part}: {json}");
    }
}

#[test]
fn two_models_are_compared_with_each_other() {
    let model = fixture("model.pnnx.param");
    let (_folder, edited) = edited("dim=-1 $input=17", "dim=-2 $input=17");
    let out = run(&["compare", &edited, "--with", &model], 1).0;
    assert!(out.contains("first: operand 18 (1,8,5)f32 of F.softmax 'F.softmax_6'"), "{out}");
    assert!(out.contains("MISMATCH: of 16 values 1 differs"), "{out}");
    // One model with other options.
    let narrow = ["compare", &model, "--with", &model, "--weights", "int8"];
    assert!(run(&narrow, 1).0.contains("differ"), "the other run has its weights as they are");
    run(&[&narrow[..], &["--with-weights", "int8"]].concat(), 0);
    let (_, err) = run(&["compare", &model, "--with", &model, "--tolerance", "nan"], 2);
    assert!(err.contains("at least 0"), "{err}");
    let other = ["--with-isa", "scalar", "--with-memory", "low"];
    let out = run(&[&["compare", &model, "--with", &model], &other[..]].concat(), 0).0;
    assert!(out.starts_with("ok: "), "{out}");
}

#[test]
fn a_model_in_bf16_is_compared_with_one_in_f32() {
    let folder = tempfile::tempdir().unwrap();
    let write = |dtype: &str| {
        let path = folder.path().join(format!("{dtype}.pnnx.param"));
        let text = format!(
            "7767517\n4 3\npnnx.Input pnnx_input_0 0 1 0 #0=(8,64){dtype}\n\
             F.softmax soft 1 1 0 1 dim=-1 $input=0 #0=(8,64){dtype} #1=(8,64){dtype}\n\
             F.silu silu 1 1 1 2 $input=1 #1=(8,64){dtype} #2=(8,64){dtype}\n\
             pnnx.Output pnnx_output_0 1 0 2\n"
        );
        std::fs::write(&path, text).unwrap();
        std::fs::write(
            path.with_extension("bin"),
            b"PK\x05\x06".iter().chain(&[0; 18]).copied().collect::<Vec<u8>>(),
        )
        .unwrap();
        path.display().to_string()
    };
    let (half, single) = (write("bf16"), write("f32"));
    let out = run(&["compare", &half, "--with", &single, "--all"], 0).0;
    assert!(out.contains("F.softmax") && out.contains("e-3"), "rounded to bf16: {out}");
    let out = run(&["compare", &half, "--with", &single, "--tolerance", "1e-5"], 1).0;
    assert!(out.contains("first: operand 1 (8,64)bf16 of F.softmax 'soft'"), "{out}");
}

#[test]
fn the_script_is_part_of_the_command() {
    let out = run(&["compare", "--script"], 0).0;
    assert!(out.starts_with("#!/usr/bin/env python3\n") && out.contains("def main()"), "{out}");
}

#[test]
fn wrong_arguments_are_told() {
    let model = fixture("model.pnnx.param");
    let (_, err) = run(&["compare", &model], 2);
    assert!(err.contains("--reference"), "{err}");
    let digits = fixture("../digits/inputs.npz");
    let (_, err) = run(&["compare", &model, "--reference", &digits], 2);
    assert!(err.contains("no array is called as an operand") && err.contains("--script"), "{err}");
    let (_, err) = run(&["compare", &model, "--with", &model, "--with-isa", "x87"], 2);
    assert!(err.contains("this machine has scalar"), "{err}");
}

#[test]
fn what_is_not_finite_is_named() {
    let (_folder, model) = edited("expr=add(@0,@1) #9", "expr=log(sub(@0,@1)) #9");
    let out = run(&["run", &model, "--check-finite", "-o", "/dev/null", "-i", &inputs()], 1).0;
    assert!(
        out.contains("'mix': makes NaN of inputs without NaN")
            || out.contains("'pnnx_expr_2': makes NaN"),
        "{out}"
    );
    assert!(out.contains("\nNOT FINITE: outputs "), "{out}");
    let model = fixture("model.pnnx.param");
    let out = run(&["run", &model, "--check-finite", "-o", "/dev/null", "-i", &inputs()], 0).0;
    assert!(out.ends_with("finite: every value of the run\n"), "{out}");
}

fn inputs() -> String {
    fixture("inputs.npz")
}
