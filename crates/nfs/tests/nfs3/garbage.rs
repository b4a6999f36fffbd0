//! Bytes that nobody sane sends: answered or dropped, never a panic.
//!
//! - Each seed decides all bytes of its run; a failure names it.
//! - What must hold: no panic, and every reply is a reply.

use tarn_nfs::wire::rpc::decode_reply;

use crate::client::*;

/// A small generator (xorshift64*), so that a seed is a run.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

async fn must_not_panic(client: &Client, message: Vec<u8>) {
    if let Some(reply) = client.send(message).await {
        decode_reply(&reply).unwrap();
    }
}

#[tokio::test]
async fn noise_is_survived() {
    let client = Server::open().client();
    for seed in 1..3000u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let len = dice.below(300);
        must_not_panic(&client, (0..len).map(|_| dice.next() as u8).collect()).await;
    }
}

/// One good call of every procedure of both programs.
async fn good_calls(client: &mut Client) -> Vec<Vec<u8>> {
    let root = client.server.root();
    let file = client.create(&root, "file").await;
    let mut out = Vec::new();
    for procedure in 0..22 {
        out.push(client.encode(NFS, procedure, |w| match procedure {
            0 => {}
            1 | 5 | 18..=20 => w.opaque(&root),
            2 => {
                w.opaque(&file);
                sattr(w, Some(0o644), Some(100));
                w.bool(false);
            }
            3 | 12 | 13 => dir_op(w, &root, "some name").end(),
            4 => {
                w.opaque(&root);
                w.u32(0x3f);
            }
            6 | 21 => {
                w.opaque(&file);
                w.u64(0);
                w.u32(100);
            }
            7 => {
                w.opaque(&file);
                w.u64(7);
                w.u32(9);
                w.u32(2);
                w.opaque(b"some data");
            }
            8 => dir_op(w, &root, "new").u32(0).sattr(Some(0o644), Some(1)),
            9 => dir_op(w, &root, "newdir").sattr(Some(0o755), None),
            10 => {
                dir_op(w, &root, "symlink").sattr(None, None);
                w.opaque(b"target");
            }
            11 => dir_op(w, &root, "fifo").u32(7).sattr(None, None),
            14 => {
                dir_op(w, &root, "file");
                dir_op(w, &root, "other");
            }
            15 => {
                w.opaque(&file);
                dir_op(w, &root, "link");
            }
            _ => {
                w.opaque(&root);
                w.u64(0);
                w.u64(0);
                w.u32(4096);
                if procedure == 17 {
                    w.u32(4096);
                }
            }
        }));
    }
    for procedure in 0..6 {
        out.push(client.encode(MOUNT, procedure, |w| {
            if procedure == 1 || procedure == 3 {
                w.opaque(b"/vol/dir");
            }
        }));
    }
    out
}

#[tokio::test]
async fn good_calls_gone_bad_are_survived() {
    let server = Server::open();
    let mut client = server.client();
    let calls = good_calls(&mut client).await;
    for message in &calls {
        let reply = client.send(message.clone()).await.unwrap();
        assert!(matches!(decode_reply(&reply).unwrap().1, tarn_nfs::wire::rpc::ReplyBody::Success(_)));
        for len in 0..message.len() {
            must_not_panic(&client, message[..len].to_vec()).await;
        }
    }
    for seed in 1..4000u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut message = calls[dice.below(calls.len())].clone();
        for _ in 0..=dice.below(4) {
            let at = dice.below(message.len());
            message[at] = match dice.below(4) {
                0 => 0,
                1 => 0xff,
                2 => message[at] ^ (1 << dice.below(8)),
                _ => dice.next() as u8,
            };
        }
        must_not_panic(&client, message).await;
    }
}
