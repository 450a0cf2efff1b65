package trial

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

type wrong struct {
	name  string
	asked parameters
	ppm   int64
	// words has what the refusal has to say: of the webhook, and of the policies where they stand alone; "": only it can tell.
	words, policys string
}

func wrongs() []wrong {
	enough := int64(900_000)
	tasks := func(executionUs, limitUs int64) parameters {
		return parameters{"tasks": []map[string]int64{{
			"executionMicroseconds": executionUs, "periodMicroseconds": 10_000, "limitMicroseconds": limitUs,
		}}}
	}
	return []wrong{
		{"a budget above its period", budget(11_000, 10_000), enough, "more than its period", "more than periodMicroseconds"},
		{"a period of 0", budget(1000, 0), enough, "must be greater than zero", "periodMicroseconds is 0"},
		{"a budget of 0", budget(0, 10_000), enough, "budget", "budgetMicroseconds is 0"},
		{"a negative period", budget(1000, -5), enough, "has to be 0 to", "it has to be greater"},
		{"more than a CPU by its own word", budget(1000, 10_000), 1_000_001, "", "more than 1000000"},
		{"more than hosts give of a CPU", budget(9500, 10_000), 0, "VCPUs may have 90 %", ""},
		{"an unknown class", budget(1000, 10_000).with("class", "gold"), enough, "no class", "no class 'gold'"},
		{"less than its reservation needs", budget(4000, 10_000), 100, "needs 400000", "less than budgetMicroseconds"},
		{"no period", parameters{"budgetMicroseconds": 1000}, enough, "say periodMicroseconds", "say periodMicroseconds"},
		{"nothing", parameters{}, enough, "say either", "say either"},
		{"a budget and tasks", tasks(1000, 5000).with("budgetMicroseconds", 1000), enough, "say either", "say either"},
		{"a word that is none", budget(1000, 10_000).with("budgte", 1), enough, "unknown field", ""},
		{"no reservation", nil, enough, "needs a reservation", "needs a reservation"},
		{"no name of threads", budget(1000, 10_000).with("threads", "of-sixteen-bytes"), enough, "threads is", "threads is no name"},
		{"threads without a name", budget(1000, 10_000).with("threads", ""), enough, "threads is", "threads is no name"},
		{"a task longer than its limit", tasks(6000, 5000), enough, "more than the deadline", ""},
	}
}

// refuses makes wrong claims, and templates of the same; each has to be refused with its reason.
func (c *Cluster) refuses(ctx context.Context, by string, words func(wrong) string) (Check, error) {
	check := Check{What: "Wrong claims and templates are refused with the reason by " + by}
	tried := 0
	var not []string
	for number, one := range wrongs() {
		expected := words(one)
		if expected == "" {
			continue
		}
		name := fmt.Sprintf("wrong-%d", number)
		_, ofClaim := c.claim(ctx, name, one.asked, one.ppm)
		ofTemplate := c.makeTemplate(ctx, name, one.asked, one.ppm)
		for kind, err := range map[string]error{"claim": ofClaim, "template": ofTemplate} {
			tried++
			switch {
			case err == nil:
				not = append(not, fmt.Sprintf("%s of %s (accepted)", kind, one.name))
			case !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err):
				return check, fmt.Errorf("%s of %s: %w", kind, one.name, err)
			case !strings.Contains(err.Error(), expected):
				not = append(not, fmt.Sprintf("%s of %s (says: %v)", kind, one.name, err))
			}
		}
		if ofClaim == nil {
			if err := c.forget(ctx, name); err != nil {
				return check, err
			}
		}
	}
	check.Holds = len(not) == 0 && tried > 0
	check.Found = fmt.Sprintf("%d of %d refused", tried-len(not), tried)
	if !check.Holds {
		check.Found += "; not: " + strings.Join(not, ", ")
	}
	return check, nil
}
