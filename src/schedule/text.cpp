// The text form of a schedule. A line is a comment from '#' on; empty lines mean nothing; blanks separate words.
//
//   text   = "gradsync schedule 1" recipe "rank" number shape step* "end"      each on a line of its own
//   recipe = "recipe" "collective=" name "algorithm=" name "world=" number "root=" number "segments=" number
//            "hosts=" ("none" | number ("," number)*) ["shards=" number ("," number)*]
//   shape  = "shape" "chunks=" number "input=" span "output=" span "scratch=" number
//   step   = [number] ("send" peer range | "recv" peer range | "recv_reduce" peer range
//                      | "copy" range "<-" range | "reduce" range "<-" range)     the number is the step's, if given
//   range  = ("input" | "output" | "scratch") span ["+" span]                     "+": from its cycle's first chunk
//   span   = "[" number ".." number ")"                                           chunks, the end excluded
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "base/limits.hpp"
#include "schedule/emit.hpp"
#include "schedule/schedule.hpp"

namespace gradsync {
namespace {

constexpr std::uint32_t kVersion = 1;

std::string_view name_of(Space space) {
  if (space == Space::input) return "input";
  return space == Space::output ? "output" : "scratch";
}

std::string_view name_of(const Step& step) {
  const bool combine = step.mode == Mode::combine;
  if (step.verb == Verb::send) return "send";
  if (step.verb == Verb::recv) return combine ? "recv_reduce" : "recv";
  return combine ? "reduce" : "copy";
}

using Text = std::back_insert_iterator<std::string>;

// Without a shape a range that wraps is printed as if its space went on.
void print_range(Text out, Space space, Range range, const Shape* shape) {
  const std::uint64_t end = std::uint64_t{range.first} + range.count;
  const std::uint32_t cycle = shape ? shape->cycle(space) : 0;
  const std::uint64_t base = cycle == 0 ? 0 : range.first / cycle * cycle, limit = base + cycle;
  if (cycle == 0 || end <= limit) fmt::format_to(out, "{}[{}..{})", name_of(space), range.first, end);
  else fmt::format_to(out, "{}[{}..{})+[{}..{})", name_of(space), range.first, limit, base, base + (end - limit));
}

void print_step(Text out, const Step& step, const Shape* shape) {
  fmt::format_to(out, "{} ", name_of(step));
  if (step.verb != Verb::local) fmt::format_to(out, "{} ", step.peer);
  print_range(out, step.space, step.range(), shape);
  if (step.verb != Verb::local) return;
  fmt::format_to(out, " <- ");
  print_range(out, step.source_space, step.source_range(), shape);
}

void print_window(Text out, std::string_view name, Window window) {
  fmt::format_to(out, " {}=[{}..{})", name, window.first, std::uint64_t{window.first} + window.count);
}

bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

// Reads words, numbers and signs; the first failure sticks, and every later call answers nothing.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  bool failed() const { return !status_.ok(); }
  Status status() const { return status_; }

  // Whether the line, or the text, holds nothing more.
  bool line_ends() {
    skip_blanks();
    return at_ == text_.size() || text_[at_] == '\n';
  }
  // To the first line that says something; false at the end of the text.
  bool next_line() {
    while (line_ends() && at_ < text_.size()) {
      line_start_ = ++at_;
      ++line_;
    }
    return at_ < text_.size();
  }
  void end_line() {
    if (!failed() && !line_ends()) fail("the end of the line");
  }

  bool digit_follows() {
    skip_blanks();
    return at_ < text_.size() && is_digit(text_[at_]);
  }
  // Takes `sign` if it comes next.
  bool accept(std::string_view sign) {
    skip_blanks();
    if (failed() || text_.substr(at_, sign.size()) != sign) return false;
    const std::size_t end = at_ + sign.size();
    const bool cut = is_word(sign.back()) && end < text_.size() && (is_word(text_[end]) || is_digit(text_[end]));
    if (cut) return false;
    at_ = end;
    return true;
  }
  void expect(std::string_view sign) {
    if (!failed() && !accept(sign)) fail(fmt::format("'{}'", sign));
  }
  // A word and where it began, for errors about its meaning.
  std::string_view word(std::string_view what) {
    skip_blanks();
    mark_ = at_;
    if (failed()) return {};
    std::size_t end = at_;
    while (end < text_.size() && (is_word(text_[end]) || (end > at_ && is_digit(text_[end])))) ++end;
    if (end == at_) return fail(what), std::string_view();
    const std::string_view found = text_.substr(at_, end - at_);
    at_ = end;
    return found;
  }
  // A number in [min, max].
  std::uint32_t number(std::string_view what, std::uint32_t min, std::uint32_t max) {
    skip_blanks();
    mark_ = at_;
    if (failed()) return 0;
    std::size_t end = at_;
    std::uint64_t value = 0;
    for (; end < text_.size() && is_digit(text_[end]); ++end)
      if (value <= 0xffffffffu) value = value * 10 + static_cast<std::uint64_t>(text_[end] - '0');
    if (end == at_ || (end < text_.size() && is_word(text_[end]))) return fail(what), 0;
    if (value < min || value > max)
      return fail(min == max ? fmt::format("{} {}", what, min) : fmt::format("{} from {} to {}", what, min, max)), 0;
    at_ = end;
    return static_cast<std::uint32_t>(value);
  }
  // Fails at what comes next, or at the last word or number if that was taken but means nothing here.
  void fail(std::string_view expected) { fail_at(at_, expected); }
  void fail_at_mark(std::string_view expected) { fail_at(mark_, expected); }

 private:
  void skip_blanks() {
    while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
    if (at_ < text_.size() && text_[at_] == '#')
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
  }
  void fail_at(std::size_t where, std::string_view expected) {
    if (failed()) return;
    status_ = failure(ErrorCode::invalid_argument, "schedule text: line {} column {}: expected {}, found {}", line_,
                      where - line_start_ + 1, expected, found_at(where));
  }
  std::string found_at(std::size_t where) const {
    if (where >= text_.size()) return "the end of the text";
    if (text_[where] == '\n') return "the end of the line";
    std::size_t end = where;
    while (end < text_.size() && (is_word(text_[end]) || is_digit(text_[end]))) ++end;
    if (end == where) {
      const auto byte = static_cast<unsigned char>(text_[where]);
      return byte < 0x20 || byte >= 0x7f ? fmt::format("the byte 0x{:02x}", byte) : fmt::format("'{}'", text_[where]);
    }
    constexpr std::size_t shown_max = 40;
    return fmt::format("'{}{}'", text_.substr(where, std::min(end - where, shown_max)),
                       end - where > shown_max ? "..." : "");
  }

  std::string_view text_;
  std::size_t at_ = 0, mark_ = 0, line_start_ = 0;
  std::uint64_t line_ = 1;
  Status status_;
};

class Parser {
 public:
  explicit Parser(std::string_view text) : scan_(text) {}

  Result<Schedule> parse() {
    line([&] {
      scan_.expect("gradsync");
      scan_.expect("schedule");
      scan_.number("version", kVersion, kVersion);
    });
    line([&] { recipe(); });
    line([&] {
      scan_.expect("rank");
      schedule_.rank = scan_.number("a rank", 0, schedule_.recipe.world - 1);
    });
    line([&] { shape(); });
    Emit out(schedule_.steps);
    bool ended = false;
    while (!ended && !scan_.failed()) line([&] { ended = scan_.accept("end") || (step(out), false); });
    if (!scan_.failed() && scan_.next_line()) scan_.fail("the end of the text");
    if (scan_.failed()) return scan_.status();
    return std::move(schedule_);
  }

 private:
  template <class Content>
  void line(Content&& content) {
    if (scan_.failed()) return;
    scan_.next_line();
    content();
    scan_.end_line();
  }

  std::uint32_t field(std::string_view name, std::string_view what, std::uint32_t min, std::uint32_t max) {
    scan_.expect(name);
    scan_.expect("=");
    return scan_.number(what, min, max);
  }

  template <class Find>
  auto named(std::string_view field_name, std::string_view what, Find&& find, const std::string& known) {
    scan_.expect(field_name);
    scan_.expect("=");
    const auto value = find(scan_.word(what));
    if (!value) scan_.fail_at_mark(fmt::format("{} ({})", what, known));
    return value;
  }

  void recipe() {
    Recipe& recipe = schedule_.recipe;
    scan_.expect("recipe");
    if (const auto c = named("collective", "a collective", collective_named, known_collectives()))
      recipe.collective = *c;
    if (const auto a = named("algorithm", "an algorithm", algorithm_named, known_algorithms())) recipe.algorithm = *a;
    recipe.world = field("world", "a number of ranks", 1, limits::ranks_max);
    if (scan_.failed()) return;
    recipe.root = field("root", "a rank", 0, recipe.world - 1);
    recipe.segments = field("segments", "a number of segments", 1, limits::segments_max);
    scan_.expect("hosts");
    scan_.expect("=");
    if (!scan_.accept("none")) {
      recipe.hosts.push_back(scan_.number("a host number or 'none'", 0, UINT32_MAX));
      while (!scan_.failed() && recipe.hosts.size() < recipe.world) {
        scan_.expect(",");
        recipe.hosts.push_back(scan_.number("a host number", 0, UINT32_MAX));
      }
    }
    if (scan_.accept("shards")) shards();
  }

  void shards() {
    scan_.expect("=");
    do schedule_.recipe.shards.push_back(scan_.number("a weight", 0, UINT32_MAX));
    while (!scan_.failed() && schedule_.recipe.shards.size() < schedule_.recipe.world && scan_.accept(","));
  }

  Range span(std::uint32_t last_end) {
    scan_.expect("[");
    const std::uint32_t first = scan_.number("a chunk", 0, last_end);
    scan_.expect("..");
    const std::uint32_t end = scan_.number("an end", first, last_end);
    scan_.expect(")");
    return {first, scan_.failed() ? 0 : end - first};
  }

  Window window(std::string_view name) {
    scan_.expect(name);
    scan_.expect("=");
    const Range range = span(schedule_.shape.chunks);
    return {range.first, range.count};
  }

  void shape() {
    Shape& shape = schedule_.shape;
    scan_.expect("shape");
    shape.chunks = field("chunks", "a number of chunks", 1, UINT32_MAX);
    if (scan_.failed()) return;
    shape.input = window("input");
    shape.output = window("output");
    shape.scratch_copies = field("scratch", "a number of scratch copies", 0, UINT32_MAX / shape.chunks);
  }

  // A range that is not empty and lies in one cycle of its space.
  Operand operand(bool written) {
    const std::string_view name = scan_.word("a space (input, output, scratch)");
    Space space = Space::scratch;
    if (name == "input" && !written) space = Space::input;
    else if (name == "output") space = Space::output;
    else if (name != "scratch")
      scan_.fail_at_mark(written ? "a space that may be written (output, scratch)"
                                 : "a space (input, output, scratch)");
    const std::uint32_t size = schedule_.shape.size(space);
    if (size == 0) scan_.fail_at_mark("a space that this rank has");
    if (scan_.failed()) return {};
    scan_.expect("[");
    const std::uint32_t first = scan_.number("a chunk", 0, size - 1);
    if (scan_.failed()) return {};
    const std::uint32_t cycle = schedule_.shape.cycle(space), base = first / cycle * cycle;
    scan_.expect("..");
    std::uint32_t count = scan_.number("an end", first + 1, base + cycle) - first;
    scan_.expect(")");
    if (!scan_.failed() && scan_.accept("+")) count += rest(first, first + count, base, cycle);
    return {space, {first, count}};
  }

  // The second part of a wrapped range: from its cycle's first chunk, at most up to where the range began.
  std::uint32_t rest(std::uint32_t first, std::uint32_t end, std::uint32_t base, std::uint32_t cycle) {
    if (end != base + cycle || first == base) {
      scan_.fail_at_mark(
          fmt::format("{} before a '+'", first == base ? "a range that starts later" : std::to_string(base + cycle)));
      return 0;
    }
    scan_.expect("[");
    scan_.number("the cycle's first chunk", base, base);
    scan_.expect("..");
    const std::uint32_t rest_end = scan_.number("an end", base + 1, first);
    scan_.expect(")");
    return scan_.failed() ? 0 : rest_end - base;
  }

  void step(Emit& out) {
    if (scan_.digit_follows()) {
      const auto number = static_cast<std::uint32_t>(out.emitted());  // the text's size keeps it in range
      scan_.number("the step's number", number, number);
    }
    const std::string_view verb = scan_.word("a step or 'end'");
    if (verb == "send" || verb == "recv" || verb == "recv_reduce") return message(verb, out);
    if (verb == "copy" || verb == "reduce") return local(verb, out);
    scan_.fail_at_mark("a step (send, recv, recv_reduce, copy, reduce) or 'end'");
  }

  void message(std::string_view verb, Emit& out) {
    const std::uint32_t peer = scan_.number("a rank", 0, schedule_.recipe.world - 1);
    if (peer == schedule_.rank) scan_.fail_at_mark("another rank than its own");
    const Operand range = operand(verb != "send");
    if (scan_.failed()) return;
    if (verb == "send") out.send(peer, range);
    else if (verb == "recv") out.recv(peer, range);
    else out.recv_reduce(peer, range);
  }

  void local(std::string_view verb, Emit& out) {
    const Operand into = operand(true);
    scan_.expect("<-");
    const Operand from = operand(false);
    if (!scan_.failed() && from.range.count != into.range.count)
      scan_.fail(fmt::format("a source of {} chunks instead of {} before", into.range.count, from.range.count));
    if (scan_.failed()) return;
    if (verb == "copy") out.copy(into, from);
    else out.reduce(into, from);
  }

  Scanner scan_;
  Schedule schedule_;
};

}  // namespace

std::string to_text(const Step& step) {
  std::string text;
  print_step(std::back_inserter(text), step, nullptr);
  return text;
}

std::string to_text(const Schedule& schedule) {
  std::string text;
  const Text out = std::back_inserter(text);
  const Recipe& recipe = schedule.recipe;
  fmt::format_to(
      out, "gradsync schedule {}\nrecipe collective={} algorithm={} world={} root={} segments={} hosts=", kVersion,
      name_of(recipe.collective), name_of(recipe.algorithm), recipe.world, recipe.root, recipe.segments);
  if (recipe.hosts.empty()) text += "none";
  for (std::size_t i = 0; i < recipe.hosts.size(); ++i) fmt::format_to(out, "{}{}", i ? "," : "", recipe.hosts[i]);
  for (std::size_t i = 0; i < recipe.shards.size(); ++i)
    fmt::format_to(out, "{}{}", i ? "," : " shards=", recipe.shards[i]);
  fmt::format_to(out, "\nrank {}\nshape chunks={}", schedule.rank, schedule.shape.chunks);
  print_window(out, "input", schedule.shape.input);
  print_window(out, "output", schedule.shape.output);
  fmt::format_to(out, " scratch={}\n", schedule.shape.scratch_copies);
  for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
    fmt::format_to(out, "{} ", i);
    print_step(out, schedule.steps[i], &schedule.shape);
    text += '\n';
  }
  text += "end\n";
  return text;
}

Result<Schedule> schedule_from_text(std::string_view text) {
  if (text.size() > limits::schedule_text_bytes_max)
    return failure(ErrorCode::out_of_range, "schedule text: {} bytes, allowed are {}", text.size(),
                   limits::schedule_text_bytes_max);
  return Parser(text).parse();
}

}  // namespace gradsync
