//! Rendezvous of threads, and stages of pipelines.

use super::{Delivery, Rendezvous, RendezvousError, Stage, StageError, Waiting};
use crate::testkit::{session, values, vector};
use plutino_ir::{CancelToken, Interrupted, Limits};
use plutino_tensor::{DType, Tensor};
use std::time::{Duration, Instant};

fn none() -> Limits {
    Limits::default()
}

fn within(time: Duration) -> Limits {
    Limits { deadline: Some(Instant::now() + time), cancel: None }
}

fn alive(received: Result<Delivery, RendezvousError>) -> Vec<f32> {
    values(&received.unwrap().tensor().unwrap())
}

#[test]
fn values_come_in_their_order_each_once() {
    let place = Rendezvous::new(3);
    std::thread::scope(|scope| {
        for key in ["a", "b"] {
            let place = &place;
            scope.spawn(move || {
                for i in 0..200 {
                    place.send(key, vector(&[i as f32]), &none()).unwrap();
                    assert!(place.len(key) <= 3);
                }
                place.finish(key);
            });
        }
        for i in 0..200 {
            assert_eq!(alive(place.receive("b", &none())), [i as f32]);
            assert_eq!(alive(place.receive("a", &none())), [i as f32]);
        }
        let error = place.receive("a", &none()).unwrap_err();
        assert_eq!(error, RendezvousError::Finished { key: "a".into() });
    });
    assert!(place.is_empty("a") && place.is_empty("b"));
    let error = place.send("a", Delivery::Dead, &none()).unwrap_err();
    assert_eq!(error.to_string(), "'a': nothing more is sent");
    place.try_send("c", vector(&[1.0])).unwrap();
    place.close();
    assert_eq!(alive(place.receive("c", &none())), [1.0], "what is there is had");
    assert!(place.receive("c", &none()).is_err() && place.try_send("d", Delivery::Dead).is_err());
}

#[test]
fn nobody_waits_longer_than_the_limits() {
    let place = Rendezvous::new(1);
    let error = place.receive("x", &within(Duration::from_millis(20))).unwrap_err();
    assert_eq!(error.to_string(), "'x': the deadline passed while waiting for a value");
    place.send("x", vector(&[1.0]), &none()).unwrap();
    let error = place.try_send("x", vector(&[2.0])).unwrap_err();
    assert_eq!(error, RendezvousError::Full { key: "x".into(), room: 1 });
    let error = place.send("x", vector(&[2.0]), &within(Duration::from_millis(20))).unwrap_err();
    let (key, why) = ("x".to_owned(), Interrupted::Deadline);
    assert_eq!(error, RendezvousError::Interrupted { key, doing: Waiting::ToSend, why });
    assert!(error.is_limit());
    // A token that is cancelled while somebody waits, and one that was before.
    let token = CancelToken::new();
    let limits = Limits { cancel: Some(token.clone()), deadline: None };
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| place.receive("y", &limits));
        std::thread::sleep(Duration::from_millis(20));
        token.cancel();
        assert!(waiting.join().unwrap().unwrap_err().is_limit());
    });
    assert!(place.receive("y", &limits).unwrap_err().is_limit());
    assert_eq!(alive(place.receive("x", &limits)), [1.0], "nothing was lost");
    assert_eq!(place.try_receive("x"), Ok(None));
}

#[test]
fn aborting_tells_everybody_why() {
    let place = Rendezvous::new(1);
    place.send("full", vector(&[1.0]), &none()).unwrap();
    std::thread::scope(|scope| {
        let receivers: Vec<_> =
            (0..3).map(|_| scope.spawn(|| place.receive("empty", &none()).err())).collect();
        let sender = scope.spawn(|| place.send("full", vector(&[2.0]), &none()).err());
        std::thread::sleep(Duration::from_millis(20));
        place.abort("the camera is gone");
        place.abort("and something else");
        for receiver in receivers {
            let (key, why) = ("empty".into(), "the camera is gone".into());
            assert_eq!(receiver.join().unwrap(), Some(RendezvousError::Aborted { key, why }));
        }
        let error = sender.join().unwrap().unwrap().to_string();
        assert_eq!(error, "'full': the rendezvous was aborted: the camera is gone");
    });
    assert!(place.receive("full", &none()).is_err(), "also what lay there");
    assert_eq!(place.aborted().as_deref(), Some("the camera is gone"));
}

#[test]
fn what_is_declared_holds() {
    let place = Rendezvous::new(2);
    place.declare("x", DType::F32, &[None, Some(2)]).unwrap();
    place.declare("x", DType::F32, &[None, Some(2)]).unwrap();
    let error = place.declare("x", DType::I64, &[]).unwrap_err().to_string();
    assert_eq!(error, "'x': declared as ()i64, and as (?,2)f32 before");
    let zeros = |dtype, dims: &[usize]| Tensor::zeros(dtype, dims.to_vec()).unwrap();
    place.send("x", zeros(DType::F32, &[5, 2]), &none()).unwrap();
    place.send("x", Delivery::Dead, &none()).unwrap();
    for bad in [zeros(DType::F32, &[5, 3]), zeros(DType::F32, &[2]), zeros(DType::F64, &[5, 2])] {
        let found = bad.spec();
        let error = place.try_send("x", bad).unwrap_err();
        let (key, expected) = ("x".to_owned(), "(?,2)f32".to_owned());
        assert_eq!(error, RendezvousError::Kind { key, expected, found });
    }
    assert_eq!(place.len("x"), 2);
}

#[test]
fn stages_hand_on_values_and_dead_ones() {
    let place = Rendezvous::new(1);
    let double = "pnnx.Input in 0 1 x\ntest.Scale s 1 1 x y by=2.0\npnnx.Output out 1 0 y";
    let first = Stage::new(session(double), &place).take("in", "x").give("y", "middle");
    let second = Stage::new(session(double), &place).take("middle", "x").give("y", "out");
    std::thread::scope(|scope| {
        let stages = [scope.spawn(|| first.run(&none())), scope.spawn(|| second.run(&none()))];
        for i in 0..20 {
            let value = match i % 3 {
                0 => Delivery::Dead,
                _ => vector(&[i as f32]).into(),
            };
            place.send("in", value, &none()).unwrap();
            let received = place.receive("out", &none()).unwrap();
            match i % 3 {
                0 => assert!(received.is_dead()),
                _ => assert_eq!(values(&received.tensor().unwrap()), [4.0 * i as f32]),
            }
        }
        place.finish("in");
        assert!(matches!(place.receive("out", &none()), Err(RendezvousError::Finished { .. })));
        for stage in stages {
            assert_eq!(stage.join().unwrap(), Ok(13));
        }
    });
}

/// A branch that is taken and one that is not meet again.
#[test]
fn branches_join_where_one_is_alive() {
    let place = Rendezvous::new(2);
    let one = "pnnx.Input in 0 1 x\ntest.Scale s 1 1 x y by=2.0\npnnx.Output out 1 0 y";
    let join = Stage::new(session(one), &place).take_one_of(&["left", "right"], "x");
    let join = join.give("y", "out");
    let send = |left: Delivery, right: Delivery| {
        place.send("left", left, &none()).unwrap();
        place.send("right", right, &none()).unwrap();
    };
    send(Delivery::Dead, vector(&[3.0]).into());
    assert_eq!(join.step(&none()), Ok(true));
    assert_eq!(alive(place.receive("out", &none())), [6.0]);
    send(Delivery::Dead, Delivery::Dead);
    assert_eq!(join.step(&none()), Ok(false));
    assert!(place.receive("out", &none()).unwrap().is_dead());
    send(vector(&[1.0]).into(), vector(&[1.0]).into());
    let error = join.step(&none()).unwrap_err();
    let (operand, first, second) = ("x".into(), "left".into(), "right".into());
    assert_eq!(error, StageError::Both { operand, first, second });
}

#[test]
fn a_stage_that_fails_aborts_the_others() {
    let place = Rendezvous::new(1);
    let refuse = "pnnx.Input in 0 1 x\ntest.Refuse careful 1 1 x y\npnnx.Output out 1 0 y";
    let first = Stage::new(session(refuse), &place).take("in", "x").give("y", "middle");
    let second = Stage::new(session(refuse), &place).take("middle", "x").give("y", "out");
    std::thread::scope(|scope| {
        let stages = [scope.spawn(|| first.run(&none())), scope.spawn(|| second.run(&none()))];
        place.send("in", vector(&[-1.0]), &none()).unwrap();
        let why = "<graph>:4: test.Refuse 'careful': input 0: -1 is negative";
        let error = place.receive("out", &none()).unwrap_err();
        assert_eq!(error, RendezvousError::Aborted { key: "out".into(), why: why.into() });
        let [first, second] = stages.map(|stage| stage.join().unwrap().unwrap_err());
        assert!(matches!(first, StageError::Session(_)), "{first}");
        assert!(matches!(second, StageError::Rendezvous(_)), "{second}");
    });
    // One key ends before another: what came under the first one has no partner.
    let place = Rendezvous::new(1);
    let two = "pnnx.Input a 0 1 x\npnnx.Input b 0 1 y\ntest.Add s 2 1 x y z\npnnx.Output o 1 0 z";
    let stage = Stage::new(session(two), &place).take("x", "x").take("y", "y").give("z", "z");
    place.send("x", vector(&[1.0]), &none()).unwrap();
    place.finish("y");
    let error = stage.run(&none()).unwrap_err();
    assert_eq!(error, RendezvousError::Finished { key: "y".into() }.into());
    assert_eq!(place.aborted().as_deref(), Some("'y': nothing more is sent"));
}
