// Every bound of gradsync in one place, with the relations between them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace gradsync::limits {

using namespace std::chrono_literals;

// Worlds.
inline constexpr std::uint32_t ranks_max = 1u << 20;
inline constexpr std::uint32_t proof_sets_ranks_max = 256;  // proofs above use fingerprints
inline constexpr std::uint32_t launch_ranks_max = 4096;     // workers of one `gradsync run` on one host

// Schedules.
inline constexpr std::uint32_t lookahead_steps = 32;  // steps of one rank that may be live at a time
inline constexpr std::uint32_t window_steps = 1024;   // steps regenerated at a time
inline constexpr std::uint32_t segments_max = 64;     // pipeline segments of tree algorithms
inline constexpr std::size_t schedule_text_bytes_max = 64u << 20;

// Waits. `timeout_default` is the one place that states how long a call waits when nobody said otherwise.
inline constexpr auto timeout_default = 300s;
inline constexpr auto connect_timeout = 30s;
inline constexpr auto handshake_timeout = 5s;
inline constexpr auto notice_timeout = 250ms;  // telling the peers about a failure, in all
inline constexpr auto destroy_timeout = 500ms;
inline constexpr auto launcher_kill_grace = 1s;  // from SIGTERM to SIGKILL; all ended within 2 s
inline constexpr auto rendezvous_timeout_default = 60s;

// Wire.
inline constexpr std::size_t frame_header_bytes = 64;
inline constexpr std::size_t message_bytes_max = std::size_t{1} << 46;
inline constexpr std::size_t notice_bytes_max = 1024;
inline constexpr std::size_t store_key_bytes_max = 256;
inline constexpr std::size_t store_value_bytes_max = 64u << 10;
inline constexpr std::size_t handshakes_pending_max = 256;

// Transports.
inline constexpr std::size_t ring_bytes_default = 256u << 10;  // one direction of one pair, shm and loopback
inline constexpr std::size_t tcp_receive_bytes = 256u << 10;   // user-space receive buffer of one peer
inline constexpr std::size_t tcp_segment_bytes = 256u << 10;   // unit that a lane takes
inline constexpr std::size_t tcp_wake_bytes = 256u << 10;      // of a long message; fewer need not wake a sleeper
inline constexpr std::size_t bulk_bytes_min = 64u << 10;       // a wait for so many from a network is a long one
inline constexpr std::uint32_t lanes_max = 16;
inline constexpr std::size_t loan_bytes_min = 128u << 10;     // shorter messages are copied even from registered memory
inline constexpr std::size_t loan_publish_bytes = 64u << 10;  // how often a reader tells how far it has read a loan
inline constexpr std::size_t landing_bytes_min = 8u
                                                 << 10;  // shorter messages are not written into the receiver's memory
inline constexpr std::size_t landing_apart_bytes_max = 1u
                                                       << 20;  // longer results of a reduction land only on its input
inline constexpr auto landing_withdraw_timeout = 50ms;         // for a peer's write that is under way, of 64 KiB
inline constexpr std::uint32_t board_ranks_max = 16;  // of one host, that reduce at a board (transport/board.hpp)
inline constexpr std::size_t board_inline_bytes = 16u << 10;  // of a message that is posted as it is, to all
inline constexpr std::size_t board_piece_bytes = 1u << 20;    // of a longer message from memory that is not registered
inline constexpr std::size_t pages_of_stream_max = 64;        // pieces of registered memory mapped for one stream
inline constexpr auto spin_alone = 3us;                       // from then on a spinning thread gives way now and then
inline constexpr auto spin_before_yield = 100us;
inline constexpr auto spin_before_yield_crowded = 0us;  // more ranks than cores: whoever is waited for needs this one
inline constexpr std::uint32_t yields_before_sleep = 64;

// Engine.
inline constexpr std::size_t piece_bytes = 64u << 10;  // a reduction's unit: stays in the cache
inline constexpr auto held_back_patience = 5ms;        // of a standstill before a message is staged out of the way
inline constexpr std::size_t operations_in_flight_max = 1u << 16;
inline constexpr std::size_t unexpected_bytes_max = 1u
                                                    << 30;  // of messages kept as a receive waits for one behind them
inline constexpr std::size_t plans_cached_max = 256;

// Links between hosts (comm/links.hpp).
inline constexpr std::uint32_t links_hosts_max = 4096;  // above, links are taken to be alike
inline constexpr std::size_t links_call_bytes_min = 1u
                                                    << 20;  // of an all-reduce that has links measured and is watched
inline constexpr std::size_t uneven_call_bytes_min = 64u << 10;  // below, latency decides, and parts are equal
inline constexpr std::size_t links_first_bytes = 192u << 10;  // to a host, before what is timed: for the connection's
                                                              // window, and for what a shaper has saved up
inline constexpr std::size_t links_timed_bytes = 288u << 10;  // of each message that is timed
inline constexpr std::uint32_t links_timed_messages = 4, links_distances_max = 3;
inline constexpr std::uint32_t links_empty_messages = 96;  // whose cost to a processor is timed
inline constexpr std::uint32_t links_window_calls = 16;    // watched calls from one look at their times to the next
inline constexpr std::uint32_t links_trial_calls = 2;      // with equal parts, after the first window with uneven ones
inline constexpr std::uint32_t links_windows_quiet = 64;   // without looks, at most, after false alarms
static_assert((links_first_bytes + links_timed_messages * links_timed_bytes) * links_distances_max <= 4u << 20,
              "a host sends and receives at most 4 MiB while links are measured");

static_assert(lookahead_steps <= 32, "the cursor keeps a 32-bit mask");
static_assert(window_steps >= lookahead_steps);
static_assert(ring_bytes_default >= 2 * piece_bytes);
static_assert(unexpected_bytes_max > ring_bytes_default, "a message that a stream holds can be kept");
static_assert(ring_bytes_default % 64 == 0 && frame_header_bytes % 64 == 0, "elements never straddle a ring's end");
static_assert(notice_timeout + destroy_timeout + landing_withdraw_timeout < 1s, "abort and destroy stay below 1 s");

}  // namespace gradsync::limits
