package trial

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Record is what a run has found.
type Record struct {
	Release  string    `json:"release"`
	Revision string    `json:"revision"`
	When     time.Time `json:"when"`
	UpSecs   float64   `json:"up_seconds"`
	Checks   []Check   `json:"checks"`
	Rounds   []Round   `json:"rounds"`
	// Waits for a place in milliseconds, with a claim and without one.
	WithClaimMs, WithoutMs []float64
}

// Extent is how often a run does what it repeats.
type Extent struct {
	// Rounds are races in which something dies, or nothing; Turns are races in which nothing does, and the two kube-schedulers
	// lead in turn. Waits are pods, with a claim and without.
	Rounds, Turns, Waits int
}

// Run tries all of it on a cluster that is up. say tells what is done.
func (c *Cluster) Run(ctx context.Context, extent Extent, say func(string)) (record Record, err error) {
	note := func(check Check, err error) error {
		if err != nil {
			return fmt.Errorf("%s: %w", check.What, err)
		}
		record.Checks = append(record.Checks, check)
		word := "holds"
		if !check.Holds {
			word = "FAILS"
		}
		say(fmt.Sprintf("%s: %s (%s)", word, check.What, check.Found))
		return nil
	}
	own, err := c.newNode(ctx, "host1", hostFile)
	if err != nil {
		return record, err
	}
	if err := c.typeGuide(ctx, "Install"); err != nil {
		return record, err
	}
	defer func() { err = errors.Join(err, own.removeCgroups()) }()
	if err := own.startDriver(ctx); err != nil {
		return record, err
	}
	defer func() { err = errors.Join(err, own.driver.stop()) }()
	if err := c.awaitPolicies(ctx); err != nil {
		return record, err
	}
	if err := note(c.refuses(ctx, "the policies alone", func(one wrong) string { return one.policys })); err != nil {
		return record, err
	}
	webhook, err := c.startWebhook(ctx)
	if err != nil {
		return record, err
	}
	defer func() { err = errors.Join(err, webhook.stop()) }()
	if err := c.awaitWebhook(ctx); err != nil {
		return record, err
	}
	for _, check := range []func() (Check, error){
		func() (Check, error) { return own.offers(ctx) },
		func() (Check, error) { return own.rights(ctx) },
		func() (Check, error) {
			return c.refuses(ctx, "the analysis, asked by the webhook", func(one wrong) string { return one.words })
		},
		func() (Check, error) { return c.writes(ctx) },
		func() (Check, error) { return c.givesTheClaim(ctx) },
	} {
		if err := note(check()); err != nil {
			return record, err
		}
	}
	if err := note(c.guided(ctx, own)); err != nil {
		return record, err
	}
	if err := c.template(ctx, "race", budget(budgetUs, periodUs)); err != nil {
		return record, err
	}
	if err := c.lives(ctx, own, note); err != nil {
		return record, err
	}
	if err := c.rounds(ctx, own, extent.Rounds, &record, say); err != nil {
		return record, err
	}
	if err := c.turns(ctx, own, extent, &record, say); err != nil {
		return record, err
	}
	return record, c.waits(ctx, extent.Waits, &record, say)
}

// lives goes through the lives of placed pods' claims on the node.
func (c *Cluster) lives(ctx context.Context, own *node, note func(Check, error) error) error {
	if err := c.burst(ctx, 0, ""); err != nil {
		return err
	}
	now, err := c.settled(ctx, places)
	if err != nil {
		return err
	}
	placed := now.placed
	if err := note(own.prepares(ctx, placed)); err != nil {
		return err
	}
	if err := note(own.lastDefence(ctx, placed[0])); err != nil {
		return err
	}
	if err := note(own.reboots(ctx, placed)); err != nil {
		return err
	}
	// Who waits would take the place of the one that goes.
	if err := c.remove(ctx, now.refused); err != nil {
		return err
	}
	if err := note(own.outlives(ctx, placed)); err != nil {
		return err
	}
	if err := note(own.forgets(ctx, placed[1:])); err != nil {
		return err
	}
	return c.empty(ctx)
}

// empty removes all pods of the trial.
func (c *Cluster) empty(ctx context.Context) error {
	now, err := c.pods(ctx)
	if err != nil {
		return err
	}
	return c.remove(ctx, slices.Concat(now.placed, now.refused, now.open))
}

func (c *Cluster) rounds(ctx context.Context, on *node, rounds int, record *Record, say func(string)) error {
	kills := []string{"", killsScheduler, killsAPI, killsEtcd}
	for number := range rounds {
		if err := c.revive(); err != nil {
			return err
		}
		round, err := c.race(ctx, on, number+1, kills[number%len(kills)])
		if err != nil {
			return fmt.Errorf("round %d (%s killed): %w", number+1, round.Killed, err)
		}
		record.Rounds = append(record.Rounds, round)
		say(fmt.Sprintf("race %d: %+v", number+1, round))
	}
	return nil
}

// turns are races without a death. Before each the kube-scheduler that has led ends, and the other leads.
func (c *Cluster) turns(ctx context.Context, on *node, extent Extent, record *Record, say func(string)) error {
	for number := range extent.Turns {
		if err := c.revive(); err != nil {
			return err
		}
		leads := number % schedulers
		if err := c.takeTurn(ctx, leads); err != nil {
			return err
		}
		round, err := c.race(ctx, on, extent.Rounds+number+1, "")
		if err != nil {
			return fmt.Errorf("turn %d: %w", number+1, err)
		}
		round.Leads = leads + 1
		record.Rounds = append(record.Rounds, round)
		say(fmt.Sprintf("turn %d of %d: %+v", number+1, extent.Turns, round))
	}
	return nil
}

func (c *Cluster) waits(ctx context.Context, count int, record *Record, say func(string)) error {
	say("one pod at a time, with a claim and without one")
	inMs := func(took time.Duration) float64 { return float64(took.Microseconds()) / 1000 }
	// In turn, so that what else the machine does meets both.
	for number := range count {
		with, err := c.wait(ctx, fmt.Sprintf("with-%d", number), "race")
		if err != nil {
			return err
		}
		without, err := c.wait(ctx, fmt.Sprintf("without-%d", number), "")
		if err != nil {
			return err
		}
		record.WithClaimMs = append(record.WithClaimMs, inMs(with))
		record.WithoutMs = append(record.WithoutMs, inMs(without))
	}
	return nil
}

// awaitPolicies waits until the API server heeds the policies that were just made.
func (c *Cluster) awaitPolicies(ctx context.Context) error {
	return until(ctx, "policies are heeded", func(ctx context.Context) error {
		_, err := c.claim(ctx, "await", budget(2, 1), 1_000_000)
		if err != nil {
			return nil
		}
		return errors.Join(errors.New("a wrong claim is accepted"), c.forget(ctx, "await"))
	})
}

// awaitWebhook waits until the API server asks the webhook: a claim without an amount is refused by the policies until then.
func (c *Cluster) awaitWebhook(ctx context.Context) error {
	return until(ctx, "the webhook is asked", func(ctx context.Context) error {
		if _, err := c.claim(ctx, "await", budget(1000, 10_000), 0); err != nil {
			return err
		}
		return c.forget(ctx, "await")
	})
}
