//! Words shared by every layer.
//!
//! Nothing here does IO, reads a clock or draws a random number: what does is
//! described in [`world`] and handed down by the program that wires Tarn together.

pub mod codec;
pub mod crypto;
pub mod ids;
pub mod large;
pub mod memory;
pub mod mutant;
pub mod pages;
pub mod soon;
pub mod time;
pub mod turns;
pub mod world;

/// CRC32C (Castagnoli) of `bytes`, the checksum of every format of ours.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}
