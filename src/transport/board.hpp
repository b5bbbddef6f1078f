// A board: memory of one rank that every rank of its host can read and write, for collectives that meet there (engine/board_run.hpp).
//
// Collectives at the board are cut into ticks, numbered alike on all ranks. For a tick a rank posts what it contributes: the bytes
// themselves if they are few, bytes in its staging, or where they lie in registered memory. There are two slots of each kind, taken in turn:
// a slot is free again when its rank has ended the tick before last, as then everybody has posted, and so has ended, that one.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>

#include "base/limits.hpp"

namespace gradsync {

struct BoardSlot {
  // One line: what all look at.
  alignas(64) std::atomic<std::uint64_t> tick;  // posted for it; stored last
  std::uint64_t fingerprint;                    // of the frame header
  std::uint64_t registered;                     // 0: in this board's staging
  std::uint64_t input_memory, input_offset, output_memory, output_offset;
  // What the rank called, for the words of a mismatch.
  alignas(64) std::array<std::byte, limits::frame_header_bytes> frame;
};

struct BoardHeader {
  alignas(64) std::atomic<std::uint64_t> finished;   // ticks of which this rank has reduced its part
  alignas(64) std::atomic<std::uint32_t> asleep;     // this rank: ring when something changes
  alignas(64) std::atomic<std::uint32_t> writing;    // this rank writes into the registered memory of others now
  alignas(64) std::atomic<std::uint32_t> withdrawn;  // this rank has taken back its memory, for good
  std::array<BoardSlot, 2> slots;
};

inline constexpr std::size_t kBoardInlineOffset = 4096;
inline constexpr std::size_t kBoardStagingOffset = kBoardInlineOffset + 2 * limits::board_inline_bytes;
inline constexpr std::size_t kBoardBytes = kBoardStagingOffset + 2 * limits::board_piece_bytes;
static_assert(sizeof(BoardHeader) <= kBoardInlineOffset);
static_assert(limits::board_inline_bytes % 4096 == 0 && limits::board_piece_bytes % 4096 == 0);

// One rank's board as the ranks of the host see it.
class BoardView {
 public:
  BoardView() = default;
  explicit BoardView(std::byte* memory) : memory_(memory) {}
  // Lays one out in zeroed memory of kBoardBytes that nobody else sees yet.
  static void make(std::span<std::byte> memory) { new (memory.data()) BoardHeader{}; }

  BoardHeader& header() const { return *std::launder(reinterpret_cast<BoardHeader*>(memory_)); }
  BoardSlot& slot(std::uint64_t tick) const { return header().slots[tick % 2]; }
  std::byte* inlined(std::uint64_t tick) const {
    return memory_ + kBoardInlineOffset + tick % 2 * limits::board_inline_bytes;
  }
  std::byte* staging(std::uint64_t tick) const {
    return memory_ + kBoardStagingOffset + tick % 2 * limits::board_piece_bytes;
  }

 private:
  std::byte* memory_ = nullptr;
};

}  // namespace gradsync
