#include "transport/ring.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/random.hpp"
#include "transport/mapping.hpp"

namespace gradsync {
namespace {

using namespace std::chrono_literals;

std::byte byte_at(std::uint64_t position) {
  return static_cast<std::byte>(mix64(position / 8) >> (8 * (position % 8)));
}

struct Pair {
  explicit Pair(std::size_t capacity) : memory(std::move(*Mapping::anonymous(kRingHeaderBytes + capacity))) {
    writer = RingWriter(memory.bytes());
    reader = *RingReader::attach(memory.bytes());
  }
  RingHeader& header() { return *reinterpret_cast<RingHeader*>(memory.bytes().data()); }
  std::size_t write(std::span<const std::byte> bytes) {
    std::span<const std::byte> pieces[] = {bytes};
    PieceCursor from(pieces);
    auto written = writer.write(from);
    EXPECT_TRUE(written.ok()) << written.status().message;
    return written.ok() ? *written : 0;
  }
  Mapping memory;
  RingWriter writer;
  RingReader reader;
};

std::vector<std::byte> pattern(std::uint64_t begin, std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = byte_at(begin + i);
  return bytes;
}

TEST(Ring, TakesWhatFitsAndSaysHowMuch) {
  Pair ring(128);
  EXPECT_EQ(ring.write(pattern(0, 200)), 128u);
  EXPECT_EQ(ring.write(pattern(128, 10)), 0u);
  std::vector<std::byte> out(200);
  EXPECT_EQ(*ring.reader.read(out), 128u);
  out.resize(128);
  EXPECT_EQ(out, pattern(0, 128));
  EXPECT_EQ(*ring.reader.read(out), 0u);
}

TEST(Ring, WritesManyPiecesIncludingEmptyOnes) {
  Pair ring(256);
  const auto bytes = pattern(0, 100);
  const std::span<const std::byte> all(bytes);
  const std::span<const std::byte> pieces[] = {{}, all.first(1), {}, all.subspan(1, 64), all.subspan(65), {}};
  PieceCursor from(pieces);
  EXPECT_EQ(*ring.writer.write(from), 100u);
  EXPECT_EQ(from.left(), 0u);
  std::vector<std::byte> out(100);
  EXPECT_EQ(*ring.reader.read(out), 100u);
  EXPECT_EQ(out, bytes);
}

TEST(Ring, ShowsSixtyFourBytesAcrossItsEndAtEveryOffset) {
  for (std::size_t capacity : {64u, 128u, 192u, 4096u})
    for (std::size_t offset = 0; offset < capacity; ++offset) {
      Pair ring(capacity);
      std::uint64_t position = 0;
      while (position < offset) {  // in small steps, so that a small ring has room
        const std::size_t step = std::min<std::size_t>(offset - position, 8);
        ASSERT_EQ(ring.write(pattern(position, step)), step);
        ASSERT_GE(ring.reader.peek(step)->size(), step);
        ring.reader.consume(step);
        position += step;
      }
      std::size_t sent = ring.write(pattern(position, 64));
      sent += ring.write(pattern(position + sent, 64 - sent));
      ASSERT_GE(sent, std::min<std::size_t>(64, capacity - capacity / 8 + 1));  // the reader releases in eighths
      auto shown = ring.reader.peek(sent);
      ASSERT_TRUE(shown.ok());
      ASSERT_GE(shown->size(), sent);
      EXPECT_EQ(std::vector<std::byte>(shown->begin(), shown->begin() + sent), pattern(position, sent)) << offset;
      ring.reader.consume(sent);
      EXPECT_TRUE(ring.reader.peek(1)->empty());
    }
}

TEST(Ring, CarriesAHundredMegabytesThroughFourKibibytes) {
  Pair ring(4096);
  constexpr std::uint64_t total = 100u << 20;
  const Deadline deadline = Deadline::after(120s);
  const auto source = pattern(0, 1 << 20);
  std::jthread writing([&] {
    Random random(7);
    for (std::uint64_t sent = 0; sent < total && !deadline.passed();) {
      const std::size_t begin = sent % source.size();
      const std::size_t most = std::min<std::uint64_t>(source.size() - begin, total - sent);
      const std::size_t count = std::min<std::size_t>(most, 1 + random.below(random.below(8) == 0 ? 20000 : 200));
      const std::size_t cut = random.below(count + 1);
      const std::span<const std::byte> all(source.data() + begin, count);
      const std::span<const std::byte> pieces[] = {all.first(cut), all.subspan(cut)};
      PieceCursor from(pieces);
      auto written = ring.writer.write(from);
      if (!written.ok()) return;
      if (*written == 0) std::this_thread::yield();
      sent += *written;
    }
  });
  Random random(8);
  std::uint64_t got = 0, wrong = 0;
  std::vector<std::byte> buffer(20000);
  while (got < total && !deadline.passed()) {
    std::span<const std::byte> bytes;
    if (random.below(2) == 0) {
      auto shown = ring.reader.peek(1 + random.below(64));
      ASSERT_TRUE(shown.ok());
      bytes = shown->first(std::min<std::size_t>(shown->size(), 1 + random.below(5000)));
    } else {
      auto count = ring.reader.read(std::span(buffer).first(1 + random.below(buffer.size())));
      ASSERT_TRUE(count.ok());
      bytes = std::span(buffer).first(*count);
    }
    if (bytes.empty()) {
      std::this_thread::yield();
      continue;
    }
    for (std::size_t i = 0; i < bytes.size(); ++i) wrong += bytes[i] != source[(got + i) % source.size()];
    got += bytes.size();
    if (bytes.data() != buffer.data()) ring.reader.consume(bytes.size());
  }
  writing.join();
  EXPECT_EQ(got, total);
  EXPECT_EQ(wrong, 0u);
}

TEST(Ring, RejectsMemoryThatIsNotARing) {
  auto memory = std::move(*Mapping::anonymous(kRingHeaderBytes + 4096));
  EXPECT_EQ(RingReader::attach(memory.bytes()).status().code, ErrorCode::protocol);
  EXPECT_EQ(RingReader::attach(memory.bytes().first(100)).status().code, ErrorCode::protocol);
  const RingWriter writer(memory.bytes());
  EXPECT_TRUE(RingReader::attach(memory.bytes()).ok());
  EXPECT_EQ(RingReader::attach(memory.bytes().first(kRingHeaderBytes + 2048)).status().code, ErrorCode::protocol);
  for (std::uint64_t capacity : {std::uint64_t{0}, std::uint64_t{4095}, std::uint64_t{8192}, ~std::uint64_t{0}}) {
    reinterpret_cast<RingHeader*>(memory.bytes().data())->capacity = capacity;
    EXPECT_EQ(RingReader::attach(memory.bytes()).status().code, ErrorCode::protocol) << capacity;
  }
}

TEST(Ring, ReportsAHostileWriterInsteadOfReadingOutside) {
  for (std::uint64_t head : {std::uint64_t{4097 + 100}, ~std::uint64_t{0}, std::uint64_t{1} << 63, std::uint64_t{50}}) {
    Pair ring(4096);
    ASSERT_EQ(ring.write(pattern(0, 100)), 100u);
    std::vector<std::byte> out(100);
    ASSERT_EQ(*ring.reader.read(out), 100u);
    ring.header().head = head;  // beyond the capacity, or back
    auto shown = ring.reader.peek(1);
    ASSERT_FALSE(shown.ok()) << head;
    EXPECT_EQ(shown.status().code, ErrorCode::protocol);
    EXPECT_EQ(ring.reader.read(out).status().code, ErrorCode::protocol);
  }
}

TEST(Ring, ReportsAHostileReaderInsteadOfOverwriting) {
  for (std::uint64_t tail : {std::uint64_t{129}, ~std::uint64_t{0}, std::uint64_t{1} << 63}) {
    Pair ring(128);
    ASSERT_EQ(ring.write(pattern(0, 128)), 128u);
    ring.header().tail = tail;
    const auto more = pattern(0, 10);
    const std::span<const std::byte> pieces[] = {more};
    PieceCursor from(pieces);
    EXPECT_EQ(ring.writer.write(from).status().code, ErrorCode::protocol) << tail;
  }
}

TEST(Ring, SaysOnceThatTheOtherSideSlept) {
  Pair ring(128);
  EXPECT_FALSE(ring.writer.take_reader_asleep());
  ring.reader.set_asleep(true);
  EXPECT_FALSE(ring.reader.bytes_changed());
  ring.write(pattern(0, 128));
  EXPECT_TRUE(ring.writer.take_reader_asleep());
  EXPECT_FALSE(ring.writer.take_reader_asleep());
  EXPECT_TRUE(ring.reader.bytes_changed());
  EXPECT_FALSE(ring.reader.bytes_changed());
  ring.writer.set_asleep(true);
  EXPECT_FALSE(ring.writer.room_changed());
  EXPECT_FALSE(ring.reader.take_writer_asleep());  // nothing was released
  std::vector<std::byte> out(128);
  ASSERT_EQ(*ring.reader.read(out), 128u);
  EXPECT_TRUE(ring.reader.take_writer_asleep());
  EXPECT_TRUE(ring.writer.room_changed());
}

TEST(Ring, RefusesImpossibleCountsOfLoans) {
  const std::vector<std::byte> lent = pattern(0, 1000);
  for (std::uint64_t ready : {std::uint64_t{1001}, ~std::uint64_t{0}}) {
    Pair ring(128);
    ring.writer.lend({1, 0, lent.size()});
    ring.reader.take_loan(*ring.reader.next_loan(), lent.data());
    ring.header().loan_ready = ready;
    EXPECT_EQ(ring.reader.peek(1).status().code, ErrorCode::protocol) << ready;
  }
  for (std::uint64_t read : {std::uint64_t{501}, ~std::uint64_t{0}}) {
    Pair ring(128);
    ring.writer.lend({1, 0, lent.size()});
    ASSERT_TRUE(ring.writer.loan_ready(500));
    ring.header().loan_read = read;
    EXPECT_EQ(ring.writer.loan_read().status().code, ErrorCode::protocol) << read;
  }
}

TEST(Ring, ShowsALoanBehindWhatWasWrittenBeforeIt) {
  const std::vector<std::byte> lent = pattern(0, 1000);
  Pair ring(128);
  ring.write(pattern(7, 10));
  ring.writer.lend({3, 4, lent.size()});
  ASSERT_TRUE(ring.writer.loan_ready(lent.size()));
  EXPECT_FALSE(ring.writer.loan_ready(lent.size()));
  EXPECT_FALSE(ring.reader.next_loan());
  std::vector<std::byte> first(10);
  ASSERT_EQ(*ring.reader.read(first), 10u);
  const std::optional<Loan> loan = ring.reader.next_loan();
  ASSERT_TRUE(loan && loan->memory == 3 && loan->offset == 4 && loan->bytes == lent.size());
  ring.reader.take_loan(*loan, lent.data());
  EXPECT_EQ(ring.reader.peek(1)->data(), lent.data());
  EXPECT_TRUE(ring.reader.consume(lent.size()));
  EXPECT_FALSE(ring.reader.next_loan());
  EXPECT_EQ(**ring.writer.loan_read(), lent.size());
  EXPECT_FALSE(ring.writer.lending());
}

}  // namespace
}  // namespace gradsync
