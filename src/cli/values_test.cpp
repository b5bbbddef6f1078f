// The values that the commands are made of: arguments, host files, environments, lines, patterns, drawings.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "algorithms/catalogue.hpp"
#include "cli/arguments.hpp"
#include "cli/drawing.hpp"
#include "cli/environment.hpp"
#include "cli/host_file.hpp"
#include "cli/output.hpp"
#include "cli/pattern.hpp"
#include "verify/proof.hpp"

namespace gradsync::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Arguments, ReadSizesWithBinarySuffixes) {
  EXPECT_EQ(*read_bytes_list("4,1K,3MiB,2G"), (std::vector<std::uint64_t>{4, 1024, 3u << 20, 2ull << 30}));
  EXPECT_EQ(*read_bytes_list("4b,1k,4KB,3mib"), (std::vector<std::uint64_t>{4, 1024, 4096, 3u << 20}));
  for (const char* bad : {"", "K", "4X", "4Ki", "-4", "1e3", "99999999999999999999", "999999999999G", "4,,5"})
    EXPECT_FALSE(read_bytes_list(bad).ok()) << bad;
}

TEST(Arguments, ReadTimeouts) {
  EXPECT_EQ(*read_timeout(1.5), std::chrono::milliseconds(1500));
  EXPECT_EQ(*read_timeout(1e-300), std::chrono::nanoseconds(1));
  EXPECT_EQ(*read_timeout(1e8), std::chrono::seconds(100'000'000));
  for (const double bad : {0., -1., 1.1e8, 1e300, std::numeric_limits<double>::infinity(), std::nan("")})
    EXPECT_FALSE(read_timeout(bad).ok()) << bad;
}

TEST(Arguments, ReadWorldSizes) {
  EXPECT_THAT(*read_worlds("1-3,8"), ElementsAre(1, 2, 3, 8));
  for (const char* bad : {"", "0", "3-1", "1-", "-3", "1-2-3", "x", "1048577", "1-100000"})
    EXPECT_FALSE(read_worlds(bad).ok()) << bad;
}

TEST(Arguments, ReadRanksOfHosts) {
  EXPECT_THAT(*read_hosts("2,1"), ElementsAre(0, 0, 1));
  for (const char* bad : {"", "0", "2,", "2,x"}) EXPECT_FALSE(read_hosts(bad).ok()) << bad;
}

TEST(HostFile, TakesEveryForm) {
  const auto hosts =
      parse_host_file("# all\nnode-a slots=4\n\n10.0.0.2:2 # two\n[fe80::2]:3\n\tnode-d\r\n2001:db8::1\n", "hosts");
  ASSERT_TRUE(hosts.ok()) << hosts.status().message;
  std::vector<std::string> text;
  for (const HostLine& host : *hosts) text.push_back(fmt::format("{} {} {}", host.line, host.host, host.slots));
  EXPECT_THAT(text, ElementsAre("2 node-a 4", "4 10.0.0.2 2", "5 fe80::2 3", "6 node-d 1", "7 2001:db8::1 1"));
  EXPECT_EQ(slots_in_all(*hosts), 11u);
}

TEST(HostFile, SaysWhereItIsWrong) {
  const auto message = [](std::string_view text) { return parse_host_file(text, "hosts").status().message; };
  EXPECT_THAT(message("a slots=x\n"), HasSubstr("hosts:1:9: expected a number of slots from 1 to 4096, found 'x'"));
  EXPECT_THAT(message("a\nb slots=0\n"), HasSubstr("hosts:2:9: expected a number of slots"));
  EXPECT_THAT(message("a slots=4 more"), HasSubstr("hosts:1:11: expected the end of the line, found 'more'"));
  EXPECT_THAT(message("a cores=4"), HasSubstr("hosts:1:3: expected 'slots=NUMBER', found 'cores=4'"));
  EXPECT_THAT(message("a:"),
              HasSubstr("hosts:1:3: expected a number of slots from 1 to 4096, found the end of the line"));
  EXPECT_THAT(message(":4"), HasSubstr("hosts:1:1: expected a host, found ':4'"));
  EXPECT_THAT(message("[::1"), HasSubstr("hosts:1:5: expected ']'"));
  EXPECT_THAT(message("# nothing\n"), HasSubstr("hosts: names no host"));
}

TEST(HostFile, FindsThisHostByItsAddress) {
  EXPECT_EQ(*find_this_host({{"192.0.2.1", 1, 1}, {"127.0.0.1", 1, 2}}), 1u);  // the first is for documentation only
  EXPECT_THAT(find_this_host({{"192.0.2.1", 1, 1}}).status().message,
              HasSubstr("192.0.2.1 is 192.0.2.1; say which with --host-index"));
  EXPECT_THAT(find_this_host({{"127.0.0.1", 1, 1}, {"127.0.0.2", 1, 2}}).status().message,
              HasSubstr("lines 1 ('127.0.0.1') and 2 ('127.0.0.2') of the host file are both this host"));
}

TEST(Environment, ReplacesOptionsOfTheSameName) {
  const auto environment = worker_environment(
      {"HOME=/", "RANK=3", "SLURM_PROCID=1", "GRADSYNC_OPTIONS=lanes=2,timeout=30"}, {"shm", "eth0", {"timeout=5"}});
  EXPECT_THAT(*environment,
              ElementsAre("HOME=/", "GRADSYNC_OPTIONS=lanes=2,timeout=5,transport=shm", "GRADSYNC_INTERFACE=eth0"));
  EXPECT_FALSE(worker_environment({}, {"", "", {"a=1,b=2"}}).ok());
}

TEST(LineBuffer, JoinsPiecesAndCutsEndlessLines) {
  LineBuffer buffer("> ");
  std::string out;
  buffer.add("a", out);
  buffer.add("b\nc\n\nd", out);
  EXPECT_EQ(out, "> ab\n> c\n> \n");
  out.clear();
  buffer.add(std::string(line_bytes_max, 'x'), out);
  EXPECT_EQ(out, "> d" + std::string(line_bytes_max - 1, 'x') + "\n");
  out.clear();
  buffer.add("\n", out);
  buffer.finish(out);
  EXPECT_EQ(out, "> x\n");
}

TEST(LineBuffer, CutsALineThatIsExactlyAsLongAsTheLimitOnce) {
  LineBuffer buffer("");
  std::string out;
  buffer.add(std::string(line_bytes_max, 'x') + "\ny\n", out);
  EXPECT_EQ(out, std::string(line_bytes_max, 'x') + "\ny\n");
}

TEST(Pattern, SeesOneWrongByteAndAShift) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::i8, DType::u64}) {
    const Pattern pattern = Pattern::reduced(dtype, ReduceOp::sum, 5);
    std::vector<std::byte> bytes(size_of(dtype) * 3000);
    pattern.fill(bytes, 700);
    EXPECT_TRUE(pattern.equals(bytes, 700));
    EXPECT_FALSE(pattern.equals(bytes, 701));
    bytes[bytes.size() - 1] ^= std::byte{1};
    EXPECT_FALSE(pattern.equals(bytes, 700));
  }
}

TEST(Pattern, HoldsTheSumInEveryFloat) {
  // f16 and bf16 of 3.0, by hand: sign 0, exponent 1 above the bias, mantissa 1.1b.
  const auto bits = [](DType dtype) {
    std::uint16_t found = 0;
    for (std::uint64_t i = 0; i < Pattern::period && found == 0; ++i) {
      std::vector<std::byte> small(2), wide(8);
      Pattern::of_rank(dtype, ReduceOp::sum, 0, 2).fill(small, i);
      Pattern::of_rank(DType::f64, ReduceOp::sum, 0, 2).fill(wide, i);
      double value = 0;
      std::memcpy(&value, wide.data(), 8);
      if (value == 3) std::memcpy(&found, small.data(), 2);
    }
    return found;
  };
  EXPECT_EQ(bits(DType::f16), 0x4200);
  EXPECT_EQ(bits(DType::bf16), 0x4040);
}

TEST(Drawing, CountsAsTheProofsDo) {
  for (const CatalogueEntry& entry : catalogue())
    for (const std::uint32_t world : {2u, 3u, 5u, 8u, 12u}) {
      const bool pair = entry.collective == Collective::send || entry.collective == Collective::recv;
      const Recipe recipe{entry.collective, entry.algorithm, pair ? 2 : world, 0, 1, {}};
      const auto drawing = draw(recipe);
      ASSERT_TRUE(drawing.ok()) << drawing.status().message;
      const Proof proof = prove(recipe);
      EXPECT_EQ(drawing->rounds, proof.counts.steps) << title_of(*drawing);
      EXPECT_EQ(drawing->messages.size(), proof.counts.messages) << title_of(*drawing);
    }
}

TEST(Drawing, PrintsARingOfThree) {
  const auto drawing = draw({Collective::all_reduce, Algorithm::ring, 3, 0, 1, {}});
  ASSERT_TRUE(drawing.ok());
  EXPECT_EQ(title_of(*drawing), "all_reduce ring on 3 ranks: 4 rounds, 12 messages, at most 4 from a rank");
  EXPECT_EQ(table_of(*drawing),
            "round  rank 0   rank 1   rank 2\n"
            "    1  1+2      2+0      0+1\n"
            "    2  1+1      2+2      0+0\n"
            "    3  1=0      2=1      0=2\n"
            "    4  1=2      2=0      0=1\n");
}

TEST(Drawing, NumbersWrappedRangesInTheWholeMessage) {
  const Shape shape{8, {0, 8}, {4, 2}, 1};
  EXPECT_EQ(chunks_text(shape, Space::input, {6, 4}), "6-7,0-1");
  EXPECT_EQ(chunks_text(shape, Space::output, {0, 2}), "4-5");
  EXPECT_EQ(chunks_text(shape, Space::scratch, {3, 1}), "3");
}

TEST(Drawing, DrawsOneArrowForEachMessage) {
  const auto drawing = draw({Collective::all_reduce, Algorithm::hierarchical, 6, 0, 1, {0, 0, 0, 1, 1, 1}});
  ASSERT_TRUE(drawing.ok());
  const std::string svg = svg_of(*drawing);
  std::size_t arrows = 0;
  for (std::size_t at = 0; (at = svg.find("<title>rank ", at)) != std::string::npos; ++at)
    arrows += svg.substr(at, svg.find('<', at + 1) - at).find(" to rank ") != std::string::npos ? 1 : 0;
  EXPECT_EQ(arrows, drawing->messages.size());
  EXPECT_THAT(svg, HasSubstr(">host 1</text>"));
}

}  // namespace
}  // namespace gradsync::cli
