// What the workers print, on its way to the launcher's own output: whole lines, each marked with its rank.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <string_view>

namespace gradsync::cli {

inline constexpr std::size_t line_bytes_max = 64u << 10;   // a longer line is cut into several
inline constexpr std::size_t output_bytes_max = 4u << 20;  // waiting for a slow reader before the workers must wait too

// Cuts the bytes of one stream into lines. Holds at most `line_bytes_max` bytes of an unfinished line.
class LineBuffer {
 public:
  explicit LineBuffer(std::string prefix) : prefix_(std::move(prefix)) {}

  // Appends to `out` every line that is complete by now, prefix first, newline last.
  void add(std::string_view bytes, std::string& out);
  // The stream has ended: an unfinished last line counts as a line.
  void finish(std::string& out);

 private:
  void emit(std::string_view line, std::string& out);
  std::string prefix_;
  std::string pending_;
};

// Bytes that wait to be written to descriptors that may be slow, in the order in which they came. Never blocks and never
// changes the mode of a descriptor, which others may share.
class OutputQueue {
 public:
  void add(int descriptor, std::string text);
  std::size_t bytes() const { return bytes_; }
  bool empty() const { return bytes_ == 0; }
  bool full() const { return bytes_ >= output_bytes_max; }

  // Writes what can be written now. Returns the descriptor that must become writable first, or -1 if all is written.
  int flush();
  // errno of the first write that failed, or 0. What waited then is dropped, and so is all that comes later.
  int error() const { return error_; }

 private:
  struct Segment {
    int descriptor;
    std::string text;
    std::size_t written = 0;
  };
  bool write_some(Segment& segment);  // false: it would block, or failed
  std::deque<Segment> segments_;
  std::size_t bytes_ = 0;
  int error_ = 0;
};

}  // namespace gradsync::cli
