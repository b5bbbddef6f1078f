// What a store and its clients say to each other.
//
// The client opens with a line that is also an HTTP request, so that an HTTP server that happens to own the port answers
// at once instead of waiting for a line's end; a store answers with its greeting. Then frames both ways:
//   u32 bytes of the body, u8 type, body. Little-endian; texts as u16 length and bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.hpp"

namespace gradsync::store_protocol {

inline constexpr std::string_view kOpening = "GRADSYNC /store/1 HTTP/1.1\r\n\r\n";
inline constexpr std::string_view kGreeting = "GRADSYNC-STORE1\n";
inline constexpr std::size_t kFrameHeaderBytes = 5;
inline constexpr std::size_t kBlobBytesMax = 1024;  // of one rank in a gather
inline constexpr std::size_t kJobBytesMax = 200;
inline constexpr std::size_t kTextBytesMax = 1024;
inline constexpr std::size_t kRequestBytesMax = limits::store_key_bytes_max + limits::store_value_bytes_max + 64;

enum class Request : std::uint8_t { hello = 1, put, get, gather, who, goodbye, fail };
enum class Reply : std::uint8_t { welcome = 1, refused, value, gathered, gone, present };
enum class Refusal : std::uint8_t { other_job, wrong };  // wrong: rank, size or a second worker of the rank

struct Hello {
  std::string job;
  std::uint32_t rank = 0, size = 0;
  std::uint64_t process = 0;
};
struct Named {  // put, gather; get and who without a value
  std::string name, value;
};
struct Gone {
  std::uint32_t rank = 0;
  std::string why;
};
struct Refused {
  Refusal reason = Refusal::wrong;
  std::string why;
};

using Frame = std::shared_ptr<const std::string>;  // one gather's answer is shared by all its ranks

std::string frame(Request type, std::string_view body);
Frame frame(Reply type, std::string_view body);

std::string encode(const Hello& hello);
std::string encode(const Named& named);
std::string encode(const Gone& gone);
std::string encode(const Refused& refused);
std::string encode_number(std::uint64_t number);
std::string encode_blobs(const std::string& name, const std::vector<std::string>& blobs);
struct Blobs {
  std::string name;
  std::vector<std::string> blobs;
};

std::optional<Hello> decode_hello(std::string_view body);
std::optional<Named> decode_named(std::string_view body);
std::optional<Gone> decode_gone(std::string_view body);
std::optional<Refused> decode_refused(std::string_view body);
std::optional<std::uint64_t> decode_number(std::string_view body);
std::optional<Blobs> decode_blobs(std::string_view body, std::uint32_t count);

// Cuts the first whole frame off `buffer`. `bytes_max` bounds the body; nothing with `bad` set if it is exceeded.
struct Cut {
  std::uint8_t type = 0;
  std::string body;
};
std::optional<Cut> cut_frame(std::string& buffer, std::size_t bytes_max, bool& bad);

}  // namespace gradsync::store_protocol
