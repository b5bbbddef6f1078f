#include "engine/board_run.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "base/wire.hpp"

namespace gradsync {
namespace {

constexpr std::size_t kFlagBytes = 8, kGreetingBytes = limits::frame_header_bytes + kFlagBytes;
constexpr std::uint32_t kRounds = 2;  // "you can see my board", then "I see all boards"
constexpr std::size_t kPayloadBytesOffset = 24;
constexpr std::uint64_t kTurnBytes = 256u << 10;  // reduced before the engine gets its turn
constexpr std::uint32_t kIdleLooks = 256;

std::uint64_t message_bytes(const Setup& setup) {
  return setup.binding.elements(Space::output) * setup.binding.element_bytes;
}

}  // namespace

bool BoardRun::takes(const Setup& setup) {
  const Recipe& recipe = setup.schedule->recipe;
  if (setup.channel != Channel::collective || recipe.world < 2 || recipe.world > limits::board_ranks_max) return false;
  if (recipe.collective == Collective::barrier) return true;
  if (recipe.collective != Collective::all_reduce) return false;
  const std::uint64_t bytes = message_bytes(setup);
  if (bytes == 0) return true;
  if (recipe.algorithm == Algorithm::one_shot) return bytes <= limits::board_inline_bytes;
  return recipe.algorithm == Algorithm::two_shot;
}

BoardRun::BoardRun(Setup setup, HostBoard& board) : setup_(std::move(setup)), board_(&board) {
  board_->rank = me();
  elements_ = setup_.binding.elements(Space::output);
  const std::size_t element = setup_.binding.element_bytes;
  inline_ = elements_ == 0 || setup_.schedule->recipe.algorithm == Algorithm::one_shot;
  piece_elements_ = limits::board_piece_bytes / element;
  header_ = encode({setup_.epoch, setup_.sequence, 0, setup_.call});
  if (board_->state == HostBoard::State::joined) stage_ = Stage::posting;
}

Result<bool> BoardRun::advance(Transport& transport, Counters& counters) {
  bool moved = false;
  while (true) {
    switch (stage_) {
      case Stage::greeting: {
        Result<bool> greeted = greet(transport);
        if (!greeted || stage_ == Stage::greeting) return greeted;
        moved = true;
        break;
      }
      case Stage::posting:
        post(piece_, transport);
        stage_ = Stage::gathering;
        moved = true;
        break;
      case Stage::gathering: {
        Result<bool> all = gather(transport);
        if (!all) return all;
        if (!*all) return moved ? Result<bool>(true) : idle(transport);
        moved = true;
        break;
      }
      case Stage::reducing: return reduce(transport, counters);
      case Stage::awaiting:
        while (come_ < size() && has_come(come_)) ++come_;
        if (come_ < size()) return moved ? Result<bool>(true) : idle(transport);
        end_piece();
        if (stage_ == Stage::finished) finish(counters);
        moved = true;
        break;
      case Stage::finished:
      case Stage::declined: return moved;
    }
  }
}

// ---- greeting: once for each board

Result<bool> BoardRun::greet(Transport& transport) {
  if (board_->state == HostBoard::State::none) return stage_ = Stage::declined, true;
  if (board_->greetings.empty()) {
    board_->greetings.resize(size());
    transport.own_board();
  }
  auto& greetings = board_->greetings;
  bool moved = false;
  for (std::uint32_t k = 1; k < size(); ++k) {
    const std::uint32_t peer = (me() + k) % size();
    HostBoard::Greeting& greeting = greetings[peer];
    if (greeting.rounds_said > 0) continue;
    if (greeting.said == 0) greeting.says = transport.own_board() != nullptr && transport.show_board(peer);
    if (Status status = say(peer, transport, moved); !status.ok()) return status;
  }
  for (std::uint32_t peer = 0; peer < size(); ++peer)  // after all have been told what this rank called
    if (peer != me())
      if (Status status = hear(peer, transport, moved); !status.ok()) return status;
  constexpr auto said = &HostBoard::Greeting::rounds_said, heard = &HostBoard::Greeting::rounds_heard;
  if (!all_greeted(said, 1) || !all_greeted(heard, 1)) return moved ? Result<bool>(true) : idle(transport);
  if (!board_->sees_all) board_->sees_all = all_sound() && see_all(transport);
  for (std::uint32_t peer = 0; peer < size(); ++peer) {
    if (peer == me() || greetings[peer].rounds_said != 1) continue;
    greetings[peer].says = *board_->sees_all;
    if (Status status = say(peer, transport, moved); !status.ok()) return status;
  }
  if (!all_greeted(said, kRounds) || !all_greeted(heard, kRounds)) return moved ? Result<bool>(true) : idle(transport);
  const bool sound = *board_->sees_all && all_sound();
  board_->state = sound ? HostBoard::State::joined : HostBoard::State::none;
  if (!sound) board_->of.clear(), board_->kept.clear();
  stage_ = sound ? Stage::posting : Stage::declined;
  return true;
}

bool BoardRun::all_greeted(std::uint32_t HostBoard::Greeting::*rounds, std::uint32_t least) const {
  for (std::uint32_t peer = 0; peer < size(); ++peer)
    if (peer != me() && board_->greetings[peer].*rounds < least) return false;
  return true;
}

bool BoardRun::all_sound() const {
  return std::all_of(board_->greetings.begin(), board_->greetings.end(), [](const auto& g) { return g.sound; });
}

Status BoardRun::say(std::uint32_t peer, Transport& transport, bool& moved) {
  HostBoard::Greeting& greeting = board_->greetings[peer];
  std::array<std::byte, kGreetingBytes> message{};
  std::copy(header_.begin(), header_.end(), message.begin());
  WireWriter(std::span(message).subspan(kPayloadBytesOffset)).u64(kFlagBytes);
  WireWriter(std::span(message).subspan(limits::frame_header_bytes)).u64(greeting.says ? 1 : 0);
  const std::span<const std::byte> rest = std::span(message).subspan(greeting.said);
  Result<std::size_t> taken = transport.send({peer, Channel::collective}, {&rest, 1});
  if (!taken) return taken.status();
  moved = moved || *taken > 0;
  greeting.said += *taken;
  if (greeting.said < kGreetingBytes) return {};
  greeting.said = 0;
  greeting.sound = greeting.sound && greeting.says;
  ++greeting.rounds_said;
  return {};
}

Status BoardRun::hear(std::uint32_t peer, Transport& transport, bool& moved) {
  HostBoard::Greeting& greeting = board_->greetings[peer];
  const Peer from{peer, Channel::collective};
  while (greeting.rounds_heard < kRounds) {
    const std::size_t wanted = greeting.header_heard ? kFlagBytes : limits::frame_header_bytes;
    Result<std::span<const std::byte>> shown = transport.peek(from, wanted);
    if (!shown) return shown.status();
    if (shown->size() < wanted) return {};
    if (!greeting.header_heard) {
      Result<FrameHeader> header = decode_frame(shown->first(wanted));
      if (!header) return header.status();
      if (Status status = check_header(setup_, peer, *header, kFlagBytes); !status.ok()) return status;
    } else {
      if (WireReader(shown->first(wanted)).u64() != 1) greeting.sound = false;
      ++greeting.rounds_heard;
    }
    greeting.header_heard = !greeting.header_heard;
    transport.consume(from, wanted);
    moved = true;
  }
  return {};
}

bool BoardRun::see_all(Transport& transport) {
  std::vector<BoardView> of;
  std::vector<std::shared_ptr<std::byte>> kept;
  for (std::uint32_t rank = 0; rank < size(); ++rank) {
    if (rank != me()) kept.push_back(transport.board_of(rank));
    std::byte* const memory = rank == me() ? transport.own_board() : kept.back().get();
    if (memory == nullptr) return false;
    of.emplace_back(memory);
  }
  board_->of = std::move(of);
  board_->kept = std::move(kept);
  return true;
}

// ---- posting

std::uint64_t BoardRun::piece_begin(std::uint64_t piece) const {
  return pieces_ == 1 ? (piece == 0 ? 0 : elements_) : std::min(elements_, piece * piece_elements_);
}

void BoardRun::post(std::uint64_t piece, Transport& transport) {
  const std::uint64_t tick = board_->ticks + piece;
  const BoardView own = board_->own();
  BoardSlot& slot = own.slot(tick);
  const Binding& binding = setup_.binding;
  if (piece == 0) post_first(transport);
  if (!registered_ && elements_ > 0) {
    const std::uint64_t begin = piece * piece_elements_, end = std::min(elements_, begin + piece_elements_);
    std::memcpy(inline_ ? own.inlined(tick) : own.staging(tick), binding.spaces[0].data + begin * binding.element_bytes,
                static_cast<std::size_t>((end - begin) * binding.element_bytes));
  }
  slot.tick.store(tick + 1, std::memory_order_seq_cst);
  posted_ = piece + 1;
  wake_others(transport);
}

void BoardRun::post_first(Transport& transport) {
  BoardSlot& slot = board_->own().slot(board_->ticks);
  slot.frame = header_;
  slot.fingerprint = fingerprint_ = fingerprint_of(header_);
  registered_ = !inline_ && show_memory(slot, transport);
  slot.registered = registered_ ? 1 : 0;
}

bool BoardRun::show_memory(BoardSlot& slot, Transport& transport) {
  const auto bytes = static_cast<std::size_t>(message_bytes(setup_));
  const std::span<const std::byte> in(setup_.binding.spaces[0].data, bytes), out(setup_.binding.spaces[1].data, bytes);
  for (std::uint32_t peer = 0; peer < size(); ++peer) {
    if (peer == me()) continue;
    const auto input = transport.show(peer, in);
    const auto output = input ? transport.show(peer, out) : input;
    if (!output) return false;
    slot.input_memory = input->memory, slot.input_offset = input->offset;
    slot.output_memory = output->memory, slot.output_offset = output->offset;
  }
  return true;
}

// After what they are to see was stored.
void BoardRun::wake_others(Transport& transport) {
  for (std::uint32_t peer = 0; peer < size(); ++peer) {
    if (peer == me()) continue;
    std::atomic<std::uint32_t>& asleep = board_->of[peer].header().asleep;
    if (asleep.load(std::memory_order_seq_cst) != 0 && asleep.exchange(0) != 0) transport.ring(peer);
  }
}

// ---- gathering

bool BoardRun::has_come(std::uint32_t peer) const {
  const BoardView board = board_->of[peer];
  if (stage_ == Stage::gathering) return board.slot(tick()).tick.load(std::memory_order_acquire) == tick() + 1;
  return board.header().finished.load(std::memory_order_acquire) >= tick() + 1;
}

// True once all have posted and it is known where their bytes are.
Result<bool> BoardRun::gather(Transport& transport) {
  for (; come_ < size() && has_come(come_); ++come_) {
    const BoardSlot& slot = board_->of[come_].slot(tick());
    if (piece_ > 0 || slot.fingerprint == fingerprint_) continue;
    // It may have gone on from what it called instead of this operation: that is what is to be named.
    if (Status status = check_first_frame(setup_, come_, transport); !status.ok()) return status;
    Result<FrameHeader> header = decode_frame(slot.frame);
    if (!header) return header.status();
    return check_header(setup_, come_, *header, header->payload_bytes);
  }
  if (come_ < size()) return false;
  come_ = 0;
  if (Status status = learn_places(transport); !status.ok()) return status;
  const std::uint64_t begin = piece_begin(piece_), count = piece_begin(piece_ + 1) - begin;
  const Layout parts = Layout::even(count, size());
  part_begin_ = inline_ ? 0 : parts.offset(me());
  part_end_ = inline_ ? count : parts.offset(me() + 1);
  stage_ = Stage::reducing;
  return true;
}

Status BoardRun::learn_places(Transport& transport) {
  if (piece_ == 0) {
    bool all_registered = true;
    places_.resize(size());
    for (std::uint32_t rank = 0; rank < size(); ++rank) {
      places_[rank].registered = board_->of[rank].slot(tick()).registered != 0;
      all_registered = all_registered && places_[rank].registered;
      writes_out_ = writes_out_ || (rank != me() && places_[rank].registered);
    }
    pieces_ = inline_ || all_registered ? 1 : (elements_ + piece_elements_ - 1) / piece_elements_;
  }
  for (std::uint32_t rank = 0; rank < size(); ++rank)
    if (Status status = learn_place(rank, transport); !status.ok()) return status;
  return {};
}

Status BoardRun::learn_place(std::uint32_t rank, Transport& transport) {
  Place& place = places_[rank];
  const BoardView board = board_->of[rank];
  if (!place.registered) {
    place.output = inline_ ? board.inlined(tick()) : board.staging(tick());
    place.input = place.output;
    return {};
  }
  const std::uint64_t at = piece_begin(piece_) * setup_.binding.element_bytes;
  if (piece_ > 0) {
    const std::uint64_t step = at - piece_begin(piece_ - 1) * setup_.binding.element_bytes;
    place.input += step, place.output += step;
    return {};
  }
  if (rank == me()) {
    place.input = setup_.binding.spaces[0].data, place.output = setup_.binding.spaces[1].data;
    return {};
  }
  const BoardSlot& slot = board.slot(tick());
  const std::uint64_t bytes = message_bytes(setup_);
  place.input = transport.shown(rank, {slot.input_memory, slot.input_offset}, bytes);
  place.output = transport.shown(rank, {slot.output_memory, slot.output_offset}, bytes);
  if (place.input == nullptr || place.output == nullptr)
    return failure(ErrorCode::out_of_memory, "{}: cannot map the {} bytes of rank {}'s registered memory",
                   operation_name(setup_.call, setup_.sequence), bytes, rank);
  return {};
}

// ---- reducing

Result<bool> BoardRun::reduce(Transport& transport, Counters& counters) {
  const std::uint64_t turn = kTurnBytes / setup_.binding.element_bytes;
  const std::uint64_t end = std::min(part_end_, part_begin_ + turn);
  if (Status status = reduce_some(part_begin_, end, transport); !status.ok()) return status;
  part_begin_ = end;
  if (part_begin_ < part_end_) return true;
  if (inline_) {
    stage_ = Stage::finished;
    finish(counters);
    return true;
  }
  if (writes_out_)  // what was read was whole
    if (Status status = check_withdrawn(transport); !status.ok()) return status;
  board_->own().header().finished.store(tick() + 1, std::memory_order_seq_cst);
  wake_others(transport);
  if (posted_ < pieces_) post(posted_, transport);
  stage_ = Stage::awaiting;
  return true;
}

Status BoardRun::check_withdrawn(Transport& transport) const {
  for (std::uint32_t peer = 0; peer < size(); ++peer)
    if (board_->of[peer].header().withdrawn.load(std::memory_order_seq_cst) != 0)
      return peer_failure(ErrorCode::peer_lost, static_cast<int>(peer), "{}: {} has ended its operation",
                          operation_name(setup_.call, setup_.sequence), transport.name(peer));
  return {};
}

// Elements [begin, end) of the piece, in sub-pieces that stay in the cache.
Status BoardRun::reduce_some(std::uint64_t begin, std::uint64_t end, Transport& transport) {
  const std::uint64_t most = limits::piece_bytes / (size() > 2 ? 2 : 1) / setup_.binding.element_bytes;
  BoardHeader& own = board_->own().header();
  while (begin < end) {
    const std::uint64_t until = std::min(end, begin + most);
    if (writes_out_) {
      own.writing.store(1, std::memory_order_seq_cst);
      const Status withdrawn = check_withdrawn(transport);
      if (withdrawn.ok()) combine(begin, until);
      own.writing.store(0, std::memory_order_release);
      if (!withdrawn.ok()) return withdrawn;
    } else {
      combine(begin, until);
    }
    begin = until;
  }
  return {};
}

void BoardRun::combine(std::uint64_t begin, std::uint64_t end) {
  const Binding& binding = setup_.binding;
  const std::uint64_t at = begin * binding.element_bytes, bytes = (end - begin) * binding.element_bytes;
  const auto count = static_cast<std::size_t>(end - begin);
  std::array<const void*, limits::board_ranks_max> from;
  for (std::uint32_t rank = 0; rank < size(); ++rank) from[rank] = places_[rank].input + at;
  std::byte* const into = inline_ ? binding.spaces[1].data + at : places_[me()].output + at;
  const bool pair = size() == 2 && into == from[me()];
  std::byte* const also = pair && !inline_ ? places_[1 - me()].output + at : nullptr;
  if (pair && binding.divisor > 1) {
    kernels::combine_and_divide(binding.work, binding.divisor, into, from[1 - me()], count, also);
  } else if (pair) {
    kernels::combine(binding.work, binding.op, into, from[1 - me()], count, also);
  } else {
    kernels::combine_many(binding.work, binding.op, into, {from.data(), size()}, count);
    if (binding.divisor > 1) kernels::divide(binding.work, binding.divisor, into, into, count);
  }
  if (inline_ || pair) return;
  for (std::uint32_t rank = 0; rank < size(); ++rank)
    if (rank != me()) std::memcpy(places_[rank].output + at, into, static_cast<std::size_t>(bytes));
}

// ---- ending

void BoardRun::end_piece() {
  const Binding& binding = setup_.binding;
  const std::uint64_t begin = piece_begin(piece_), end = piece_begin(piece_ + 1);
  if (!registered_)
    std::memcpy(binding.spaces[1].data + begin * binding.element_bytes, board_->own().staging(tick()),
                static_cast<std::size_t>((end - begin) * binding.element_bytes));
  come_ = 0;
  if (++piece_ == pieces_) stage_ = Stage::finished;
  else stage_ = posted_ > piece_ ? Stage::gathering : Stage::posting;
}

// Counts what the schedule says.
void BoardRun::finish(Counters& counters) {
  board_->ticks += pieces_;
  for (const Step& step : setup_.schedule->steps) {
    const std::uint64_t bytes = setup_.binding.region(step.space, step.range()).bytes();
    if (step.verb == Verb::send) ++counters.messages_sent, counters.bytes_sent += bytes;
    if (step.verb == Verb::recv) ++counters.messages_received, counters.bytes_received += bytes;
    if (step.writes() && step.mode == Mode::combine) counters.elements_reduced += bytes / setup_.binding.element_bytes;
  }
}

// A writer that does not end, as its process is stopped, goes on in pages that are nobody's. One that is gone has ended.
void BoardRun::withdraw(Transport& transport) {
  if (board_->state != HostBoard::State::joined || !board_->maker.is_this()) return;
  board_->own().header().withdrawn.store(1, std::memory_order_seq_cst);
  if (!registered_ || posted_ == 0 || stage_ == Stage::finished) return;
  const Deadline deadline = Deadline::after(limits::landing_withdraw_timeout);
  for (std::uint32_t peer = 0; peer < size(); ++peer) {
    const std::atomic<std::uint32_t>& writing = board_->of[peer].header().writing;
    const auto gone = [&] {
      return transport.peek({peer, Channel::collective}, limits::frame_header_bytes).status().code ==
             ErrorCode::peer_lost;
    };
    while (peer != me() && writing.load(std::memory_order_seq_cst) != 0 && !gone()) {
      if (deadline.passed()) {
        transport.take_away({setup_.binding.spaces[1].data, static_cast<std::size_t>(message_bytes(setup_))});
        return;
      }
      ::sched_yield();
    }
  }
}

// ---- waiting

Result<bool> BoardRun::idle(Transport& transport) {
  if (++idle_ % kIdleLooks != 0) return false;
  if (Status status = look_for_lost(transport); !status.ok()) return status;
  return false;
}

Result<bool> BoardRun::stage(Transport& transport, Counters&, TimePoint) {
  if (Status status = look_for_lost(transport); !status.ok()) return status;
  return false;
}

// A rank that left after it had done its share is no loss.
Status BoardRun::look_for_lost(Transport& transport) {
  if (stage_ != Stage::gathering && stage_ != Stage::awaiting) return {};
  for (std::uint32_t peer = come_; peer < size(); ++peer) {
    if (peer == me()) continue;
    Result<std::span<const std::byte>> shown = transport.peek({peer, Channel::collective}, limits::frame_header_bytes);
    if (shown.ok() || has_come(peer)) continue;
    Status status = shown.status();
    status.message = fmt::format("{}: {}", operation_name(setup_.call, setup_.sequence), status.message);
    return status;
  }
  return {};
}

Status BoardRun::check_senders(Transport& transport) {
  if (stage_ == Stage::greeting) return {};
  for (std::uint32_t peer = 0; peer < size(); ++peer)
    if (peer != me())
      if (Status status = check_first_frame(setup_, peer, transport); !status.ok()) return status;
  return {};
}

bool BoardRun::news() {
  if (board_->state != HostBoard::State::joined || stage_ == Stage::finished) return stage_ != Stage::greeting;
  if (stage_ != Stage::gathering && stage_ != Stage::awaiting) return true;
  return has_come(come_);
}

int BoardRun::waits_for() const {
  if (stage_ == Stage::greeting) {  // who is behind, not who waits for that one too
    for (std::uint32_t rounds = 0; rounds < kRounds; ++rounds)
      for (std::uint32_t peer = 0; peer < board_->greetings.size(); ++peer)
        if (peer != me() && board_->greetings[peer].rounds_heard == rounds) return static_cast<int>(peer);
    return -1;
  }
  return come_ < size() && come_ != me() ? static_cast<int>(come_) : -1;
}

std::string BoardRun::waits_in_words() const {
  const int peer = waits_for();
  if (peer < 0) return "nothing";
  if (stage_ == Stage::awaiting)
    return fmt::format("rank {} to reduce its part, piece {} of {}", peer, piece_ + 1, pieces_);
  if (piece_ == 0) return fmt::format("rank {} to join", peer);
  return fmt::format("rank {} to bring piece {} of {}", peer, piece_ + 1, pieces_);
}

}  // namespace gradsync
