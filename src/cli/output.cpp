#include "cli/output.hpp"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace gradsync::cli {
namespace {

// poll() reports a pipe or terminal as writable when this much fits; POSIX promises 512, Linux a page.
constexpr std::size_t fits_when_writable = 4096;
constexpr std::size_t segment_bytes = 64u << 10;

bool is_regular_file(int descriptor) {
  struct stat about {};
  return ::fstat(descriptor, &about) == 0 && S_ISREG(about.st_mode);
}

bool is_writable(int descriptor) {
  pollfd watch{descriptor, POLLOUT, 0};
  return ::poll(&watch, 1, 0) == 1;  // an error counts: the write will word it
}

}  // namespace

void LineBuffer::emit(std::string_view line, std::string& out) { out.append(prefix_).append(line).push_back('\n'); }

void LineBuffer::add(std::string_view bytes, std::string& out) {
  for (;;) {
    const std::size_t end = bytes.find('\n');
    const std::size_t take = std::min({end, bytes.size(), line_bytes_max - pending_.size()});
    pending_.append(bytes.substr(0, take));
    bytes.remove_prefix(take);
    if (!bytes.empty() && bytes.front() == '\n') bytes.remove_prefix(1);
    else if (pending_.size() < line_bytes_max || bytes.empty()) return;
    emit(pending_, out);
    pending_.clear();
  }
}

void LineBuffer::finish(std::string& out) {
  if (!pending_.empty()) emit(pending_, out);
  pending_.clear();
}

void OutputQueue::add(int descriptor, std::string text) {
  if (error_ != 0 || text.empty()) return;
  bytes_ += text.size();
  if (!segments_.empty() && segments_.back().descriptor == descriptor &&
      segments_.back().text.size() + text.size() <= segment_bytes)
    segments_.back().text += text;
  else segments_.push_back({descriptor, std::move(text)});
}

bool OutputQueue::write_some(Segment& segment) {
  const bool file = is_regular_file(segment.descriptor);
  if (!file && !is_writable(segment.descriptor)) return false;
  const std::size_t left = segment.text.size() - segment.written;
  const ssize_t done = ::write(segment.descriptor, segment.text.data() + segment.written,
                               file ? left : std::min(left, fits_when_writable));
  if (done >= 0) {
    segment.written += static_cast<std::size_t>(done);
    bytes_ -= static_cast<std::size_t>(done);
    return true;
  }
  if (errno == EINTR) return true;
  if (errno != EAGAIN && errno != EWOULDBLOCK) error_ = errno;
  return false;
}

int OutputQueue::flush() {
  while (!segments_.empty()) {
    Segment& segment = segments_.front();
    if (segment.written == segment.text.size()) {
      segments_.pop_front();
    } else if (!write_some(segment)) {
      if (error_ == 0) return segment.descriptor;
      segments_.clear();
      bytes_ = 0;
    }
  }
  return -1;
}

}  // namespace gradsync::cli
