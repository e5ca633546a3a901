//! Sums of convolutions: which become one, and that results stay.

use super::fusion_tests::left;

/// A convolution of `x` to `value`: groups, kernel size, padding and the rest.
fn conv(value: &str, groups: usize, kernel: usize, padding: usize, rest: &str) -> String {
    let (channels, stride) =
        (4 / groups, if rest.contains("stride") { "" } else { "stride=(1,1)" });
    let dilation = if rest.contains("dilation") { "" } else { "dilation=(1,1)" };
    let mode = if rest.contains("mode") { "" } else { "padding_mode=zeros" };
    format!(
        "nn.Conv2d {value} 1 1 x {value} bias=True groups={groups} in_channels=4 {stride} {mode} {dilation} \
         kernel_size=({kernel},{kernel}) out_channels=4 padding=({padding},{padding}) {rest} @bias=(4)f32 \
         @weight=(4,{channels},{kernel},{kernel})f32\n"
    )
}

const NORM: &str = "affine=True eps=0.001 num_features=4 @bias=(4)f32 @running_mean=(4)f32 \
    @running_var=(4)f32 @weight=(4)f32";

/// What is left of these lines and a last value `z`, and what was refused.
fn rest(lines: &str) -> (Vec<String>, Vec<String>) {
    let lines = format!("pnnx.Input in 0 1 x\n{lines}\npnnx.Output out 1 0 z");
    left("branches", &[2, 4, 6, 5], &lines)
}

/// Whether these lines become the convolution `by` and nothing else, in planes or in blocks.
fn all_in(by: &str, lines: &str) {
    let (nodes, why) = rest(lines);
    let convs: Vec<_> =
        nodes.iter().filter(|node| !node.contains("x>x~") && !node.contains("z~>z")).collect();
    assert!(convs.len() == 1 && convs[0].starts_with(by), "{nodes:?} {why:?}");
}

#[test]
fn convolutions_of_one_image_become_the_one_with_the_largest_window() {
    let sum = "pnnx.Expression e 3 1 a b c z expr=add(add(@0,@1),@2)";
    let [a, b] = [conv("a", 1, 1, 0, ""), conv("b", 1, 3, 1, "")];
    // Groups within groups, and a window whose taps lie apart.
    for c in [
        conv("c", 1, 3, 1, ""),
        conv("c", 4, 3, 1, ""),
        conv("c", 2, 1, 0, ""),
        conv("c", 1, 1, 0, "padding_mode=reflect"),
    ] {
        all_in("b+", &format!("{a}{b}{c}{sum}"));
    }
    let wide = conv("b", 2, 5, 2, "");
    let apart = conv("c", 4, 3, 2, "dilation=(2,2)");
    all_in("b+", &format!("{}{wide}{apart}{sum}", conv("a", 2, 3, 1, "")));
    // Every second pixel; one expression for each sum.
    let sums =
        "pnnx.Expression e 2 1 a b s expr=add(@0,@1)\npnnx.Expression f 2 1 s c z expr=sub(@0,@1)";
    let strided = |name, kernel, padding| conv(name, 1, kernel, padding, "stride=(2,2)");
    let all = [strided("a", 1, 0), strided("b", 3, 1), strided("c", 1, 0)].concat();
    all_in("b+", &format!("{all}{sums}"));
}

#[test]
fn batch_norms_and_factors_of_channels_are_taken_along() {
    let [a, b] = [conv("a", 4, 1, 0, ""), conv("b", 4, 3, 1, "")];
    let norm = |from: &str, to: &str| format!("nn.BatchNorm2d {to} 1 1 {from} {to} {NORM}\n");
    // RepVGG and MobileOne.
    let sum = "pnnx.Expression e 3 1 a b n z expr=add(add(@0,@1),@2)";
    all_in("b+", &format!("{}{a}{b}{sum}", norm("x", "n")));
    // FastViT.
    let sum = "pnnx.Attribute g 0 1 g @data=(4,1,1)f32\n\
               pnnx.Expression e 6 1 x a b n m g z expr=add(@0,mul(sub(add(add(@1,@2),@3),@4),@5))";
    all_in("b+", &format!("{}{}{a}{b}{sum}", norm("x", "n"), norm("x", "m")));
    // A norm behind a sum, and numbers.
    let sum = "pnnx.Expression e 2 1 a b s expr=div(add(add(neg(@0),@1),0.5),2)\n";
    all_in("b+", &format!("{a}{b}{sum}{}", norm("s", "z")));
    all_in("b+", &format!("{b}{}pnnx.Expression e 2 1 n b z expr=add(@0,@1)", norm("x", "n")));
}

#[test]
fn lines_are_images_as_well() {
    let line = |name: &str, kernel: usize, dilation: usize, padding: usize| {
        format!(
            "nn.Conv1d {name} 1 1 x {name} bias=False groups=1 in_channels=4 stride=(1) padding_mode=zeros \
             dilation=({dilation}) kernel_size=({kernel}) out_channels=4 padding=({padding}) \
             @weight=(4,4,{kernel})f32\n"
        )
    };
    let [a, b] = [line("a", 3, 2, 2), line("b", 5, 1, 2)];
    let lines = format!(
        "pnnx.Input in 0 1 x\n{a}{b}pnnx.Expression e 2 1 a b z expr=sub(@0,@1)\npnnx.Output out 1 0 z"
    );
    let (nodes, why) = left("branches", &[2, 4, 9], &lines);
    assert!(nodes.iter().any(|node| node.starts_with("b+a+e ")), "{nodes:?} {why:?}");
    // Without a batch, the second dimension is not that of channels.
    let (nodes, _) = left("branches", &[4, 4], &lines);
    assert!(nodes.iter().any(|node| node.starts_with("a ")), "{nodes:?}");
}

#[test]
fn what_reads_another_image_stays_a_summand() {
    let [a, b] = [conv("a", 1, 1, 0, ""), conv("b", 1, 3, 1, "")];
    let other = format!("nn.ReLU y 1 1 x y\n{}", conv("c", 1, 3, 1, "").replace("1 1 x", "1 1 y"));
    let sum = "pnnx.Expression e 3 1 a b c z expr=add(add(@0,@1),@2)";
    let (nodes, _) = rest(&format!("{other}{a}{b}{sum}"));
    assert!(!nodes.iter().any(|node| node.starts_with("a ")), "{nodes:?}");
    assert!(nodes.iter().any(|node| node.starts_with("b")), "{nodes:?}");
    // Factors of channels are for the convolution, the image is a residual.
    let scaled = "pnnx.Attribute g 0 1 g @data=(1,4,1,1)f32\n\
                  pnnx.Expression e 3 1 x c g z expr=add(@0,mul(@1,@2))";
    let (nodes, why) = rest(&format!("{other}{scaled}"));
    assert!(nodes.iter().any(|node| node.starts_with("c+e")), "{nodes:?} {why:?}");
}

#[test]
fn what_is_no_sum_of_convolutions_stays() {
    let [a, b] = [conv("a", 1, 1, 0, ""), conv("b", 1, 3, 1, "")];
    let sum = "pnnx.Expression e 2 1 a b z expr=add(@0,@1)";
    let both = |lines: &str| {
        let (nodes, why) = rest(lines);
        let has = |name: &str| nodes.iter().any(|node| node.starts_with(name));
        assert!(has("a") && has("b"), "{nodes:?} {why:?}");
    };
    // Products, windows that do not cover each other, other pixels, groups across groups.
    both(&format!("{a}{b}pnnx.Expression e 2 1 a b z expr=mul(@0,@1)"));
    let flat = |line: &str, size: &str, pad: &str| {
        let line = line.replace("kernel_size=(3,3)", &format!("kernel_size=({size})"));
        let line = line.replace("padding=(1,1)", &format!("padding=({pad})"));
        line.replace("4,3,3)f32", &format!("4,{size})f32"))
    };
    let [row, column] =
        [flat(&conv("a", 1, 3, 1, ""), "1,3", "0,1"), flat(&conv("b", 1, 3, 1, ""), "3,1", "1,0")];
    both(&format!("{row}{column}{sum}"));
    let mirrored = conv("a", 1, 3, 1, "padding_mode=reflect");
    both(&format!("{mirrored}{b}{sum}"));
    both(&format!("{}{}{sum}", conv("a", 1, 1, 0, ""), conv("b", 2, 3, 1, "")));
    both(&format!("{}{}{sum}", conv("a", 1, 3, 2, "dilation=(2,2)"), b));
    // Somebody reads one of them.
    both(&format!(
        "{a}{b}nn.ReLU r 1 1 a r\npnnx.Expression e 3 1 a b r z expr=add(add(@0,@1),@2)"
    ));
    // An activation comes in between.
    both(&format!("{a}{b}nn.ReLU r 1 1 a r\npnnx.Expression e 2 1 r b z expr=add(@0,@1)"));
    // A number for each column is none for each channel.
    let columns = "pnnx.Attribute g 0 1 g @data=(5)f32\n\
                   pnnx.Expression e 3 1 a b g z expr=add(@0,mul(@1,@2))";
    both(&format!("{a}{b}{columns}"));
}

#[test]
fn a_residual_is_added_on_the_way_as_before() {
    let residual = format!("{}pnnx.Expression e 2 1 x b z expr=add(@0,@1)", conv("b", 1, 3, 1, ""));
    let (nodes, _) = rest(&residual);
    assert!(nodes.iter().any(|node| node.starts_with("b+e x")), "{nodes:?}");
    assert!(nodes.iter().any(|node| node.contains("x,x>") || node.contains("x,")), "{nodes:?}");
}
