// An all-reduce of ranks that share one host, at the board (transport/board.hpp) instead of over streams.
//
// The same schedules, one_shot and two_shot, fused: an owner reads its part of every rank's memory in one pass, in the order of the ranks, and
// writes the result to all of them. So the bits, and the messages and bytes that are counted, are those of the schedule.
//
//   few bytes (one_shot)    post them; when all have posted, add all up
//   registered memory       post where it lies; when all have posted, reduce the own part into every rank's output; done when all have
//   other memory            the same in pieces through the staging of the board: copied in, reduced, copied out; the next piece is
//                           copied in before the others' parts of this one are awaited
//
// Who has which memory is seen in what the ranks post: nobody has to know beforehand. Before the first operation the ranks greet
// each other with two small frames a pair, and agree whether all see all boards; if not, streams do everything, as ever.
//
// Taking back registered memory is as with landing (transport/landing.hpp): a writer announces a write of at most
// limits::piece_bytes a place and then looks whether somebody has withdrawn.
#pragma once

#include <memory>
#include <vector>

#include "base/process.hpp"
#include "engine/movement.hpp"
#include "transport/board.hpp"

namespace gradsync {

// What an engine knows of its board.
class HostBoard {
 public:
  enum class State : std::uint8_t { unknown, joined, none };
  State state = State::unknown;
  std::uint64_t ticks = 0;    // ended so far; alike on all ranks
  std::vector<BoardView> of;  // by rank, once joined
  BoardView own() const { return of[rank]; }
  std::uint32_t rank = 0;
  MakingProcess maker;  // a forked child has its parent's boards before it

  struct Greeting {  // of one peer
    std::uint32_t rounds_said = 0, rounds_heard = 0;
    std::size_t said = 0;  // bytes of this round's
    bool says = false;     // this round; stays once a byte has left
    bool header_heard = false, sound = true;
  };
  std::vector<Greeting> greetings;
  std::optional<bool> sees_all;                  // this rank, once it is known: the same word to everybody
  std::vector<std::shared_ptr<std::byte>> kept;  // the boards' memory
};

class BoardRun final : public Movement {
 public:
  // Whether such an operation is done at a board, if there is one.
  static bool takes(const Setup& setup);
  BoardRun(Setup setup, HostBoard& board);

  Result<bool> advance(Transport& transport, Counters& counters) override;
  Result<bool> stage(Transport& transport, Counters& counters, TimePoint now) override;
  std::optional<TimePoint> stages_at() const override { return std::nullopt; }
  Status check_senders(Transport& transport) override;
  bool news() override;
  void withdraw(Transport& transport) override;
  bool finished() const override { return stage_ == Stage::finished; }
  int waits_for() const override;
  std::string waits_in_words() const override;
  const Setup& setup() const override { return setup_; }

  // The ranks found that there is no board: the operation is to be done over streams.
  bool declined() const { return stage_ == Stage::declined; }
  Setup take_setup() { return std::move(setup_); }

 private:
  enum class Stage : std::uint8_t { greeting, posting, gathering, reducing, awaiting, finished, declined };
  struct Place {  // where a rank's contribution and result lie, for the first element of the piece
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
    bool registered = false;
  };

  Result<bool> greet(Transport& transport);
  bool all_greeted(std::uint32_t HostBoard::Greeting::*rounds, std::uint32_t least) const;
  bool all_sound() const;
  Status say(std::uint32_t peer, Transport& transport, bool& moved);
  Status hear(std::uint32_t peer, Transport& transport, bool& moved);
  bool see_all(Transport& transport);

  void post(std::uint64_t piece, Transport& transport);
  void post_first(Transport& transport);
  bool show_memory(BoardSlot& slot, Transport& transport);
  Result<bool> gather(Transport& transport);
  Status learn_places(Transport& transport);
  Status learn_place(std::uint32_t peer, Transport& transport);
  Result<bool> reduce(Transport& transport, Counters& counters);
  Status reduce_some(std::uint64_t begin, std::uint64_t end, Transport& transport);
  void combine(std::uint64_t begin, std::uint64_t end);
  void end_piece();
  void finish(Counters& counters);
  void wake_others(Transport& transport);
  Result<bool> idle(Transport& transport);
  Status look_for_lost(Transport& transport);

  std::uint32_t size() const { return setup_.schedule->recipe.world; }
  std::uint32_t me() const { return setup_.schedule->rank; }
  std::uint64_t tick() const { return board_->ticks + piece_; }  // of the piece at hand
  std::uint64_t piece_begin(std::uint64_t piece) const;
  bool has_come(std::uint32_t peer) const;
  // peer_lost if a rank has taken back its memory.
  Status check_withdrawn(Transport& transport) const;

  Setup setup_;
  HostBoard* board_;
  Stage stage_ = Stage::greeting;
  bool inline_ = false;      // few bytes
  bool registered_ = false;  // our memory is
  bool writes_out_ = false;  // into somebody's registered memory
  std::uint64_t elements_ = 0, piece_elements_ = 0, pieces_ = 1;
  std::uint64_t piece_ = 0, posted_ = 0;
  std::uint64_t part_begin_ = 0, part_end_ = 0;  // elements of the piece that are left to be reduced here
  std::uint32_t come_ = 0;                       // ranks that have, of those waited for, in the order of the ranks
  std::uint32_t idle_ = 0;
  FrameBytes header_;
  std::uint64_t fingerprint_ = 0;
  std::vector<Place> places_;
};

}  // namespace gradsync
