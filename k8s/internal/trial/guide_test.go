package trial

import (
	"os"
	"slices"
	"testing"
)

func TestASectionsCommandsAreTypedUnlessAWordSaysWhyNot(t *testing.T) {
	page := "# A\n\n## One\n<!-- not typed: no such host -->\n```sh\nno\n```\n\n```sh\na\nb\n```\n```toml\nx = 1\n```\n## Two\n```sh\nc\n```\n"
	for section, expected := range map[string][]string{"One": {"a\nb"}, "Two": {"c"}, "Three": nil} {
		if found := commandsOf(page, section); !slices.Equal(found, expected) {
			t.Errorf("%s: %q", section, found)
		}
	}
}

func TestTheGuideHasCommandsToType(t *testing.T) {
	page, err := os.ReadFile("../../../" + guidePage)
	if err != nil {
		t.Fatal(err)
	}
	for _, section := range []string{"Install", "The webhook", "Claim"} {
		if len(commandsOf(string(page), section)) == 0 {
			t.Errorf("%q has none", section)
		}
	}
}
