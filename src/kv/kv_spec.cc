#include "neve/kv_spec.h"

#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace neve {
namespace {

constexpr const char* kUnderstood =
    "f16, int8, int4, int2, graded:W (2..8), pm:8, pm:4, pm:2, auto, auto:W, llama:f16, llama:q8_0, llama:q4_0";

Status wrong(std::string_view spec, const std::string& what) {
  return Status(Code::kInvalidArgument, "--kv \"" + std::string(spec) + "\": " + what);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t from = 0;;) {
    const std::size_t to = text.find(separator, from);
    parts.push_back(text.substr(from, to == std::string_view::npos ? to : to - from));
    if (to == std::string_view::npos) return parts;
    from = to + 1;
  }
}

bool parse_number(std::string_view text, double* value) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), *value);
  return result.ec == std::errc() && result.ptr == text.data() + text.size() && std::isfinite(*value);
}

bool parse_integer(std::string_view text, int* value) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), *value);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

bool is_option(std::string_view part) { return part.find('=') != std::string_view::npos; }

Status set_option(std::string_view spec, std::string_view option, KvSpec* out) {
  const std::size_t equals = option.find('=');
  const std::string_view name = option.substr(0, equals);
  const std::string_view value = equals == std::string_view::npos ? "" : option.substr(equals + 1);
  const auto bad = [&](const char* wanted) {
    return wrong(spec, "option " + std::string(name) + ": wanted " + wanted + ", got \"" + std::string(value) + "\"");
  };
  if (name == "shift") {
    if (value == "equivalent")
      out->shift = Shift::kEquivalent;
    else if (value == "direct")
      out->shift = Shift::kDirect;
    else if (value == "modified")
      out->shift = Shift::kModified;
    else if (value == "clipped")
      out->shift = Shift::kClipped;
    else
      return bad("equivalent, direct, modified or clipped");
  } else if (name == "top") {
    if (value == "f16")
      out->top = TopRung::kF16;
    else if (value == "int16")
      out->top = TopRung::kInt16;
    else
      return bad("f16 or int16");
  } else if (name == "group") {
    if (!parse_integer(value, &out->group) || out->group < 4 || out->group > 128 || out->group % 4 != 0) {
      return bad("a multiple of 4 from 4 to 128");
    }
  } else if (name == "sinks") {
    if (!parse_integer(value, &out->sinks) || out->sinks < 0 || out->sinks > 128) return bad("0 to 128");
  } else if (name == "window") {
    if (!parse_integer(value, &out->window) || out->window < 0 || out->window > 65536) return bad("0 to 65536");
  } else if (name == "clip") {
    if (!parse_number(value, &out->clip) || out->clip < 0.5 || out->clip > 1.0) return bad("0.5 to 1");
  } else {
    return wrong(spec, "option \"" + std::string(name) + "\": wanted shift, group, sinks, window, top or clip");
  }
  return ok_status();
}

Status set_mode(std::string_view spec, std::string_view name, std::string_view argument, KvSpec* out) {
  const auto no_argument = [&]() {
    return argument.empty() ? ok_status() : wrong(spec, "\"" + std::string(name) + "\" takes no width");
  };
  if (name == "f16") {
    out->mode = KvMode::kF16;
    return no_argument();
  }
  if (name == "int8" || name == "int4" || name == "int2") {
    out->mode = KvMode::kFixed;
    out->bits = name[3] - '0';
    return no_argument();
  }
  if (name == "graded" || name == "auto") {
    out->mode = name == "graded" ? KvMode::kGraded : KvMode::kAuto;
    out->shift = Shift::kClipped;
    if (argument.empty() && name == "auto") return ok_status();
    const double most = name == "graded" ? 8.0 : 16.0;
    if (!parse_number(argument, &out->width) || out->width < 2.0 || out->width > most) {
      return wrong(spec, "width: wanted 2 to " + std::to_string(static_cast<int>(most)) + ", got \"" +
                             std::string(argument) + "\"");
    }
    return ok_status();
  }
  if (name == "pm") {
    out->mode = KvMode::kPaper;
    if (argument == "8/4" || argument == "4/2") {
      return Status(Code::kUnsupported, "--kv \"" + std::string(spec) +
                                            "\": widths per layer need a profile, which this "
                                            "version cannot make; wanted pm:8, pm:4 or pm:2");
    }
    if (argument != "8" && argument != "4" && argument != "2") {
      return wrong(spec, "final width: wanted 8, 4 or 2, got \"" + std::string(argument) + "\"");
    }
    out->bits = argument[0] - '0';
    return ok_status();
  }
  if (name == "llama") {
    out->mode = KvMode::kPeer;
    out->peer_type = std::string(argument);
    if (argument == "f16" || argument == "q8_0" || argument == "q4_0") return ok_status();
    return wrong(spec, "llama.cpp's cache: wanted f16, q8_0 or q4_0, got \"" + std::string(argument) + "\"");
  }
  for (const char* later :
       {"rtn4", "rtn2", "kivi4", "kivi2", "rotate4", "rotate2", "mikv4", "mikv2", "skvq4", "skvq2"}) {
    if (name == later) {
      return Status(Code::kUnsupported, "--kv \"" + std::string(spec) +
                                            "\": this comparison is not built yet; wanted one of " +
                                            std::string(kUnderstood));
    }
  }
  return wrong(spec, "wanted one of " + std::string(kUnderstood));
}

}  // namespace

Result<KvSpec> parse_kv_spec(std::string_view text) {
  KvSpec spec;
  spec.text = std::string(text);
  const std::vector<std::string_view> parts = split(text, ':');
  std::size_t at = 1;
  std::string_view argument;
  if (parts.size() > at && !is_option(parts[at])) argument = parts[at++];
  NEVE_RETURN_IF_ERROR(set_mode(text, parts[0], argument, &spec));
  if (at == 2 && argument.empty()) return wrong(text, "wanted a width or options after the colon, got nothing");
  if (spec.mode == KvMode::kPeer && parts.size() > at) return wrong(text, "llama.cpp's cache takes no options");
  for (; at < parts.size(); ++at) {
    for (const std::string_view option : split(parts[at], ',')) NEVE_RETURN_IF_ERROR(set_option(text, option, &spec));
  }
  if (spec.top == TopRung::kInt16) {
    return Status(Code::kUnsupported, "--kv \"" + std::string(text) + "\": top=int16 is not built yet; wanted top=f16");
  }
  return spec;
}

Result<std::vector<KvSpec>> parse_kv_specs(std::string_view list) {
  std::vector<std::string> texts;
  for (const std::string_view part : split(list, ',')) {
    // "window=128" after "pm:4:sinks=1" goes on with the options of that spec; "pm:4:sinks=1" starts one.
    const bool continues = is_option(part) && part.find(':') == std::string_view::npos;
    if (continues && !texts.empty()) {
      texts.back() += "," + std::string(part);
    } else {
      texts.emplace_back(part);
    }
  }
  std::vector<KvSpec> specs;
  for (const std::string& text : texts) {
    Result<KvSpec> spec = parse_kv_spec(text);
    if (!spec.ok()) return spec.status();
    specs.push_back(std::move(spec).value());
  }
  return specs;
}

Result<unsigned long long> parse_bytes(std::string_view text) {
  const auto wrong_bytes = [&] {
    return Status(
        Code::kInvalidArgument,
        "bytes: wanted a number with B, kB, MB, GB, TB, KiB, MiB, GiB or TiB, got \"" + std::string(text) + "\"");
  };
  std::size_t digits = 0;
  while (digits < text.size() && (std::isdigit(static_cast<unsigned char>(text[digits])) != 0 || text[digits] == '.'))
    ++digits;
  double value = 0.0;
  if (!parse_number(text.substr(0, digits), &value)) return wrong_bytes();
  const std::string_view unit = text.substr(digits);
  struct Unit {
    const char* name;
    double bytes;
  };
  constexpr Unit kUnits[] = {{"", 1},
                             {"B", 1},
                             {"kB", 1e3},
                             {"KB", 1e3},
                             {"MB", 1e6},
                             {"GB", 1e9},
                             {"TB", 1e12},
                             {"KiB", 1024},
                             {"MiB", 1048576.0},
                             {"GiB", 1073741824.0},
                             {"TiB", 1099511627776.0},
                             {"K", 1024},
                             {"M", 1048576.0},
                             {"G", 1073741824.0},
                             {"T", 1099511627776.0}};
  for (const Unit& known : kUnits) {
    if (unit != known.name) continue;
    const double bytes = std::floor(value * known.bytes);
    if (bytes < 0.0 || bytes >= 9.2e18) return wrong_bytes();
    return static_cast<unsigned long long>(bytes);
  }
  return wrong_bytes();
}

std::string format_bytes(unsigned long long bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < std::size(units)) {
    value /= 1024.0;
    ++unit;
  }
  char text[48];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return text;
}

}  // namespace neve
