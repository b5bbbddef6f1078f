// Text as numbers: every character (byte) that occurs becomes a token.
#pragma once

#include <torch/torch.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace training {

inline constexpr const char* text_package = "fortunes";
inline constexpr const char* text_folder = "/usr/share/games/fortunes";
// Of that package (and fortunes-min, which it depends on): quotations, verse and popular science, half a million characters.
inline constexpr std::array<const char*, 5> text_files = {"literature", "people", "science", "songs-poems", "wisdom"};

// All files, one after another. Throws DataError: missing, unreadable, empty, or with a zero byte (not text).
std::string load_text(const std::filesystem::path& folder, std::span<const char* const> names);

class Tokeniser {
 public:
  explicit Tokeniser(std::string_view text);  // its vocabulary, in the order of the bytes' values
  std::int64_t size() const { return static_cast<std::int64_t>(characters_.size()); }
  // (length) i64. Throws std::out_of_range for a character that is not in the vocabulary.
  torch::Tensor encode(std::string_view text) const;
  std::string decode(std::span<const std::int64_t> tokens) const;

 private:
  std::string characters_;
  std::array<std::int64_t, 256> token_of_{};  // -1: not in the vocabulary
};

struct TextBatch {
  torch::Tensor tokens;   // (N, context) i64
  torch::Tensor targets;  // (N, context) i64: the token that follows each
};

// Consecutive windows of `context` tokens and the one after each.
class TextWindows {
 public:
  TextWindows(torch::Tensor tokens, std::int64_t context);
  std::size_t size() const;
  TextBatch batch(std::span<const std::size_t> indices) const;

 private:
  torch::Tensor tokens_;
  std::int64_t context_;
};

}  // namespace training
