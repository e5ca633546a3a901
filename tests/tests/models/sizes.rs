//! How large a model may be: limits of files reach plans, and of graphs that were made in memory
//! as well.

use plutino::ir::{Graph, LoadError, LoadOptions, ParseErrorKind};
use plutino::{
    Model, ModelError, SessionError, SessionOptions, Shape, SizeLimit, SizeLimits, Tensor, TooLarge,
};

const TEXT: &str = "7767517\n4 3\npnnx.Input in 0 1 a #a=(2,3)f32\n\
                    torch.unsqueeze up 1 1 a b dim=0\n\
                    torch.sin sin 1 1 b c\n\
                    pnnx.Output out 1 0 c\n";

fn options(limit: SizeLimit, most: usize) -> LoadOptions {
    let sizes = SizeLimits::default().with(limit, most);
    LoadOptions { sizes, ..LoadOptions::default() }
}

fn run(limit: SizeLimit, most: usize, shape: &[usize]) -> Result<Vec<Tensor>, SessionError> {
    let graph = Graph::parse(TEXT).unwrap();
    let model = Model::from_graph_with(graph, options(limit, most)).unwrap();
    let x = Tensor::ones(plutino::DType::F32, Shape::from(shape)).unwrap();
    model.session(SessionOptions::default().with_threads(1)).unwrap().run(&[x])
}

#[test]
fn plans_have_limits() {
    assert!(run(SizeLimit::Rank, 3, &[2, 3]).is_ok());
    let error = run(SizeLimit::Rank, 2, &[2, 3]).unwrap_err();
    assert!(error.is_limit(), "{error}");
    let SessionError::TooLarge { at: Some(at), error } = error else { panic!("{error}") };
    assert_eq!((at.name.as_str(), at.line), ("up", Some(4)));
    assert_eq!(error, TooLarge { limit: SizeLimit::Rank, found: 3, most: 2 });
    // An input has too many dimensions itself.
    let error = run(SizeLimit::Rank, 2, &[1, 2, 3]).unwrap_err();
    assert!(matches!(error, SessionError::TooLarge { at: None, .. }), "{error}");

    assert!(run(SizeLimit::PlannedBytes, 1000, &[2, 3]).is_ok());
    let error = run(SizeLimit::PlannedBytes, 1000, &[200, 300]).unwrap_err();
    let SessionError::TooLarge { error: TooLarge { limit, found, most }, .. } = error else {
        panic!("{error}")
    };
    assert_eq!((limit, most), (SizeLimit::PlannedBytes, 1000));
    assert!(found >= 200 * 300 * 4, "{found}");
}

#[test]
fn graphs_have_limits() {
    let graph = || Graph::parse(TEXT).unwrap();
    assert!(Model::from_graph_with(graph(), options(SizeLimit::Operators, 4)).is_ok());
    let error = Model::from_graph_with(graph(), options(SizeLimit::Operators, 3)).unwrap_err();
    let ModelError::TooLarge { error, at: None, .. } = error else { panic!("{error}") };
    assert_eq!(error, TooLarge { limit: SizeLimit::Operators, found: 4, most: 3 });
    let error = Model::from_graph_with(graph(), options(SizeLimit::Arguments, 1)).unwrap_err();
    let ModelError::TooLarge { at: Some(at), .. } = &error else { panic!("{error}") };
    assert_eq!(at.name, "up");
    assert!(error.to_string().contains("can raise 'arguments'"), "{error}");
}

#[test]
fn files_have_limits_that_can_be_raised() {
    let path =
        std::env::temp_dir().join(format!("plutino-sizes-{}.pnnx.param", std::process::id()));
    let mut lines = vec!["pnnx.Input in 0 1 v0 #v0=(4)f32".to_owned()];
    lines.extend((0..180_000).map(|i| format!("nn.ReLU op{i} 1 1 v{i} v{}", i + 1)));
    lines.push("pnnx.Output out 1 0 v180000".to_owned());
    let text = format!("7767517\n{} 180001\n{}\n", lines.len(), lines.join("\n"));
    std::fs::write(&path, &text).unwrap();
    let load = |options: &LoadOptions| Graph::load_with(&path, options);
    let words = text.chars().filter(|c| matches!(c, ' ' | ',' | '\n')).count();
    let refused = load(&LoadOptions::default());
    let enough = load(&options(SizeLimit::Words, words));
    let small = load(&options(SizeLimit::TextBytes, 1000));
    std::fs::remove_file(&path).unwrap();
    let Err(LoadError::Param { error, .. }) = refused else { panic!("it was read") };
    let most = SizeLimit::Words.default_value();
    let expected = TooLarge { limit: SizeLimit::Words, found: words, most };
    assert_eq!(error.kind, ParseErrorKind::TooLarge(expected));
    assert_eq!(enough.unwrap().operator_count(), 180_002);
    // No more of a file is read than is looked at.
    let Err(LoadError::Param { error, .. }) = small else { panic!("it was read") };
    let expected = TooLarge { limit: SizeLimit::TextBytes, found: 1001, most: 1000 };
    assert_eq!(error.kind, ParseErrorKind::TooLarge(expected));
}
