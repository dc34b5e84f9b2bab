//! Hosts and local senders that break the protocol (P5): connections that carry no frames, random
//! frames, statuses that lie, and invalid records. Other lanes are not harmed.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tontine_gateway::frame::{FrameKind, HEADER, Header};
use tontine_gateway::status::LaneState;

use crate::hosts::gateways::{Host, TcpGateways, own_address};
use crate::hosts::program::SenderTask;
use crate::hosts::{AMPLE, SeededNumbers, resources, until};
use crate::raw;
use crate::starts::Hosts;

/// Port of the hostile host C, which A dials.
const PORT_OF_C: u16 = 7448;

/// Two honest hosts, both of which have a hostile peer C.
fn start() -> Hosts {
    let mut hosts = Hosts::new();
    let (c, dir) = (own_address(PORT_OF_C), hosts.path().display().to_string());
    hosts.route.reconfigure(Host::B, |config| config + "[peers.C]\n");
    let import = format!("\"C/jobs\" = \"{dir}/C-jobs\"\n[peers.C]\nconnect = \"{c}\"\n");
    hosts.route.reconfigure(Host::A, |config| config + &import);
    hosts
}

/// An honest lane from A to B, which carries messages while `attack` runs.
fn attack(attack: impl FnOnce(&TcpGateways, &Path)) {
    let hosts = start();
    let gateways = &hosts.route;
    let owner = hosts.owner().start();
    let mut sender = SenderTask { pause_us: 200, ..hosts.sender(1, u64::MAX) }.start();
    hosts.wait_until_received(1);
    let before = [Host::A, Host::B].map(|host| resources::descriptors(gateways.pid(host)));
    attack(gateways, hosts.path());
    sender.ask_to_end();
    hosts.check_all_received(&sender.report());
    drop(sender);
    // A keeps the lanes of senders that have ended until C answers.
    let kept = 3 * gateways.status(Host::A).lanes.len();
    for (host, before) in [Host::A, Host::B].into_iter().zip(before) {
        let pid = gateways.pid(host);
        until("no descriptor is left", || resources::descriptors(pid) <= before + 1 + kept);
        let (_, private) = resources::memory(pid);
        println!("{host:?}: {} KiB of private memory", private >> 10);
        assert!(private < 64 << 20);
    }
    owner.finish();
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("listens");
    stream.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout");
    stream
}

/// Returns `true` if the other end closes the connection in time.
fn is_closed(stream: &mut TcpStream) -> bool {
    let deadline = Instant::now() + AMPLE;
    let mut bytes = [0; 4096];
    while Instant::now() < deadline {
        match stream.read(&mut bytes) {
            Ok(0) => return true,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return true,
            _ => {}
        }
    }
    false
}

fn random_bytes(random: &mut SeededNumbers, length: usize) -> Vec<u8> {
    (0..length).map(|_| random.below(256) as u8).collect()
}

/// Returns a frame with a valid checksum and random contents.
fn random_frame(random: &mut SeededNumbers, lanes: &[u128]) -> Vec<u8> {
    use FrameKind::{Bye, Data, Hello, Ping, Pong, Status};
    let kinds = [Hello, Data, Status, Ping, Pong, Bye];
    let kind = kinds[random.below(6) as usize];
    let own = u128::from(random.below(4)) + 1;
    let lane = lanes.get(random.below(8) as usize).copied().unwrap_or(own);
    let mut header = Header::new(kind, lane, random.below(4) as u32);
    let small = |random: &mut SeededNumbers| match random.below(4) {
        0 => u64::MAX - random.below(64),
        1 => random.below(u64::MAX),
        _ => random.below(512) * 8,
    };
    header.flags = match kind {
        Hello => random.below(4) as u16,
        Status => (random.below(64) as u16 & 0b11_1100) | (random.below(2) as u16) << 7,
        Bye => (random.below(2) as u16) << 6,
        _ => 0,
    };
    header.owner = u128::from(random.below(3));
    (header.a, header.b, header.c) = (small(random), small(random), small(random));
    let payload = match kind {
        Hello if random.below(4) > 0 => b"jobs".to_vec(),
        Data if random.below(2) > 0 => {
            let mut record = (random.below(40)).to_le_bytes().to_vec();
            record.extend(random_bytes(random, 40));
            record
        }
        _ => {
            let length = random.below(200) as usize;
            random_bytes(random, length)
        }
    };
    let mut frame = Vec::new();
    header.write(&payload, &mut frame);
    frame
}

#[test]
fn connection_without_valid_first_line_is_closed() {
    alone!();
    attack(|gateways, _| {
        let mut random = SeededNumbers(77);
        let noise = random_bytes(&mut random, 5000);
        let lines: [&[u8]; 7] = [
            b"GET / HTTP/1.1\r\n\r\n",
            b"tontine/2 default A B\n",
            b"tontine/1 other A B\n",
            b"tontine/1 default D B\n",
            b"tontine/1 default A C\n",
            b"\n",
            &noise,
        ];
        for line in lines {
            let mut stream = connect(gateways.address);
            stream.write_all(line).expect("written");
            assert!(is_closed(&mut stream), "{:?}", line.escape_ascii().to_string());
        }
        let log = gateways.log(Host::B);
        assert!(log.contains("tontine/2 default A B") && log.contains("other A B"), "{log}");
    });
}

#[test]
fn silent_connections_are_closed_and_do_not_pile_up() {
    alone!();
    attack(|gateways, _| {
        let mut silent: Vec<TcpStream> = (0..100).map(|_| connect(gateways.address)).collect();
        // It keeps 64 connections without a first line, the newest ones.
        assert!(silent[..36].iter_mut().all(is_closed));
        let held = resources::descriptors(gateways.pid(Host::B));
        assert!(held < 100, "{held} descriptors");
        // Half a frame, then nothing, from a peer that connects again and again.
        let mut halves = Vec::new();
        for _ in 0..40 {
            let mut stream = connect(gateways.address);
            stream.write_all(b"tontine/1 default C B\n").expect("written");
            let mut frame = Vec::new();
            Header::new(FrameKind::Ping, 1, 0).write(&[1; 500], &mut frame);
            stream.write_all(&frame[..100]).expect("written");
            halves.push(stream);
            thread::sleep(Duration::from_millis(5));
        }
        let (last, earlier) = halves.split_last_mut().expect("several");
        assert!(earlier.iter_mut().all(is_closed));
        last.set_read_timeout(Some(Duration::from_millis(1))).expect("a timeout");
        drop(silent);
    });
}

#[test]
fn random_frames_do_not_harm_lanes_of_other_hosts() {
    alone!();
    attack(|gateways, _| {
        let lanes: Vec<u128> = gateways
            .status(Host::B)
            .lanes
            .iter()
            .map(|lane| u128::from_str_radix(&lane.lane, 16).expect("digits"))
            .collect();
        let mut random = SeededNumbers(4242);
        for _ in 0..20 {
            let mut stream = connect(gateways.address);
            stream.write_all(b"tontine/1 default C B\n").expect("written");
            let mut reader = stream.try_clone().expect("a descriptor");
            let reads =
                thread::spawn(move || while reader.read(&mut [0; 65536]).is_ok_and(|n| n > 0) {});
            for _ in 0..400 {
                if stream.write_all(&random_frame(&mut random, &lanes)).is_err() {
                    break;
                }
            }
            // Bytes that are no frame end the connection.
            let _ = stream.write_all(&random_bytes(&mut random, HEADER));
            drop(stream);
            reads.join().expect("no panic");
        }
    });
}

/// The way in which the hostile receiving host answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    /// Acknowledges more than was sent.
    Acknowledge,
    /// Acknowledges the middle of a record.
    Middle,
    /// Acknowledges more than it accepts.
    Reverse,
    /// Grants nothing.
    Starve,
    /// Accepts half of a record's header.
    Unaligned,
    /// Asks for everything again and again.
    Repeat,
    /// Sends statuses for random lanes, and random frames.
    Random,
    /// None, but the host reboots when something has arrived, and no owner starts again.
    Reboot,
}

/// Runs the hostile host C, which answers pings properly. Returns the number of received bytes.
fn run_host_c(listener: &TcpListener, lie: Lie, stop: &AtomicBool) -> usize {
    let mut random = SeededNumbers(99);
    let mut received = 0;
    listener.set_nonblocking(true).expect("set");
    while !stop.load(Ordering::Relaxed) {
        let Ok((mut stream, _)) = listener.accept() else {
            thread::sleep(Duration::from_millis(2));
            continue;
        };
        stream.set_nonblocking(false).expect("set");
        stream.set_read_timeout(Some(Duration::from_millis(100))).expect("set");
        let _ = stream.write_all(b"tontine/1 default C A\n");
        let mut bytes = Vec::new();
        let mut has_first_line = false;
        let mut rebooted = HashSet::new();
        while !stop.load(Ordering::Relaxed) {
            let mut part = [0; 65536];
            match stream.read(&mut part) {
                Ok(0) => break,
                Ok(length) => {
                    bytes.extend_from_slice(&part[..length]);
                    received += length;
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
                Err(_) => break,
            }
            if !has_first_line {
                let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { continue };
                bytes.drain(..=end);
                has_first_line = true;
            }
            while bytes.len() >= HEADER {
                let length = u32::from_le_bytes(*bytes[64..].first_chunk().expect("inside"));
                let total = HEADER + length as usize;
                if bytes.len() < total {
                    break;
                }
                let frame: Vec<u8> = bytes.drain(..total).collect();
                let (header, _) = Header::read(&frame).expect("A is honest");
                for answer in answers(&header, lie, &mut random, &mut rebooted) {
                    let _ = stream.write_all(&answer);
                }
            }
        }
    }
    received
}

/// Stops the hostile host, also if a check fails.
struct StopsOnDrop<'a>(&'a AtomicBool);

impl Drop for StopsOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn answers(
    header: &Header,
    lie: Lie,
    random: &mut SeededNumbers,
    rebooted: &mut HashSet<u128>,
) -> Vec<Vec<u8>> {
    // Lanes of earlier lies are left, so the host reboots once for each lane.
    if lie == Lie::Reboot && header.kind == FrameKind::Data {
        rebooted.insert(header.lane);
    }
    let mut frame = Vec::new();
    if header.kind == FrameKind::Ping {
        let instance = 8 + rebooted.len() as u128;
        let pong = Header { kind: FrameKind::Pong, lane: instance, ..*header };
        pong.write(&[], &mut frame);
        return vec![frame];
    }
    let mut status = Header::new(FrameKind::Status, header.lane, header.attempt);
    let at = if header.kind == FrameKind::Hello { header.a } else { header.a.wrapping_add(64) };
    status.owner = 5;
    (status.a, status.b, status.c) = match lie {
        Lie::Acknowledge => (at + (1 << 20), at + (1 << 20), at + (2 << 20)),
        Lie::Middle => (at, at.saturating_sub(8), at + (1 << 20)),
        Lie::Reverse => (at, at + 8, at + (1 << 20)),
        Lie::Starve => (0, 0, 0),
        Lie::Unaligned => (at + 4, at, at + 12),
        Lie::Reboot => {
            let begins_again = header.kind == FrameKind::Hello && header.owner != 0;
            if begins_again && rebooted.contains(&header.lane) {
                status.flags = tontine_gateway::frame::OWNER_DIED;
            }
            (0, 0, 1 << 20)
        }
        Lie::Repeat => {
            status.flags = tontine_gateway::frame::REPEAT;
            (0, 0, 1 << 20)
        }
        Lie::Random => {
            let lanes = [header.lane];
            return (0..3).map(|_| random_frame(random, &lanes)).collect();
        }
    };
    status.write(&[], &mut frame);
    vec![frame]
}

const LIES: [Lie; 8] = [
    Lie::Acknowledge,
    Lie::Middle,
    Lie::Reverse,
    Lie::Starve,
    Lie::Unaligned,
    Lie::Repeat,
    Lie::Random,
    Lie::Reboot,
];

#[test]
fn lying_statuses_harm_lanes_to_that_host_alone() {
    alone!();
    attack(|gateways, folder| {
        for lie in LIES {
            let listener = TcpListener::bind(own_address(PORT_OF_C)).expect("listens");
            let stop = AtomicBool::new(false);
            thread::scope(|scope| {
                let host_c = scope.spawn(|| run_host_c(&listener, lie, &stop));
                let stops = StopsOnDrop(&stop);
                let task = SenderTask::new(&folder.join("C-jobs"), 3, 40_000);
                let task = SenderTask { length: 56, waits: false, lingers: true, ..task };
                let mut victim = task.start();
                victim.wait_for("ready");
                let ends = !matches!(lie, Lie::Starve | Lie::Repeat | Lie::Random);
                if !ends {
                    // The hostile host has this time for harm.
                    thread::sleep(Duration::from_millis(500));
                    victim.ask_to_end();
                }
                let report = victim.report();
                println!("{lie:?}: {}", report.summary());
                if report.error.is_some() {
                    report.check();
                }
                assert!(report.error.is_some() || !ends, "{lie:?}: {}", report.summary());
                if lie == Lie::Reboot {
                    assert_eq!(report.errno, libc::EOWNERDEAD, "{}", report.summary());
                    assert!(!report.in_doubt.is_empty());
                }
                drop(stops);
                let received = host_c.join().expect("no panic");
                // A peer that accepts nothing receives what it granted once per timer.
                println!("{lie:?}: {} KiB sent to C", received >> 10);
                assert!(lie != Lie::Repeat || received < 64 << 20, "{received} bytes");
            });
            drop(listener);
            assert!(resources::threads(gateways.pid(Host::A)) < 8);
        }
    });
}

#[test]
fn peer_with_too_many_lanes_leaves_other_peers_theirs() {
    alone!();
    let mut hosts = start();
    hosts.route.reconfigure(Host::B, |config| format!("max_lanes = 50\n{config}"));
    let gateways = &hosts.route;
    let owner = hosts.owner().start();
    let mut c = connect(gateways.address);
    c.write_all(b"tontine/1 default C B\n").expect("written");
    for lane in 1..=200 {
        let mut frame = Vec::new();
        let hello = Header { c: 64, ..Header::new(FrameKind::Hello, lane, 1) };
        hello.write(b"jobs", &mut frame);
        c.write_all(&frame).expect("written");
    }
    let of_c = || {
        let lanes = gateways.status(Host::B).lanes;
        lanes.iter().filter(|lane| lane.peer == "C" && lane.state == LaneState::Open).count()
    };
    until("C has its maximum of lanes", || of_c() == 50);
    hosts.check_all_received(&hosts.sender(1, 100).start().report());
    assert_eq!(of_c(), 50);
    owner.finish();
}

#[test]
fn local_sender_that_breaks_protocol_loses_only_its_lane() {
    alone!();
    attack(|gateways, folder| {
        let (_socket, chunk) = raw::lane(&folder.join("B-jobs"));
        until("both gateways have the lane", || gateways.have_lanes(2));
        chunk.put(raw::RING, raw::header(3, 12));
        until("both gateways forget the lane", || gateways.have_lanes(1));
    });
}
